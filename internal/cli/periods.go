package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/jobs"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

type periodsOptions struct {
	listing
	names names
	reset bool
	yes   bool
	job   string // the job to reset
}

func newPeriods(a *app) *cobra.Command {
	o := &periodsOptions{listing: listing{app: a, about: locks.AboutNames}}
	cmd := &cobra.Command{
		Use:   "periods [QUERY... | --reset NAME]",
		Short: "Show when once-per-period jobs last ran, or let one run again",
		Long: `Show the last period or tick of every job that runs once per period ("mutexctl run --once-per",
jobs.OncePer) or for each tick of a schedule (--once-at, jobs.OnceAt): when it began, who used it up and
when, and whether the job is running.
A QUERY finds names: a word is a part of one, and * and ? make it a pattern.

With --reset, forget the last period of a job: its next call runs it, even a second time in the same
period. Use it to repeat a failed run, or after a clock was wrong: a period that begins in the future was
used up by a machine whose clock was ahead, and the job does not run before then; correct the clock first.
On a terminal --reset asks; elsewhere --yes is required. Exits with 4 when there is no period to forget.`,
		Example: `  mutexctl periods
  mutexctl periods 'daily/*' -o json | jq -r 'select(.running) | .name'
  mutexctl periods --reset daily/report --yes`,
		Args: argCount(0, -1, "[QUERY...]"),
	}
	o.format = term.Output(cmd, term.TableFormat, term.JSONFormat)
	o.names.flag(cmd)
	cmd.Flags().BoolVar(&o.reset, "reset", false, "forget the last period of the job NAME")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "with --reset: do not ask")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.parse(cmd, args); err != nil {
			return err
		}
		if o.reset {
			return o.app.withSession(cmd.Context(), o.resetPeriod)
		}
		return o.app.withSession(cmd.Context(), o.run)
	}
	return cmd
}

// parse reads the name of the job to reset, or else the patterns.
func (o *periodsOptions) parse(cmd *cobra.Command, args []string) (err error) {
	switch {
	case !o.reset && o.yes:
		return usageErrorf("--yes goes with --reset")
	case !o.reset:
		return o.listing.parse(args)
	case len(args) != 1:
		return usageErrorf("--reset wants the NAME of one job")
	case cmd.Flags().Changed("output"):
		return usageErrorf("--output does not go with --reset")
	}
	if o.job, err = o.names.parseValid(args[0]); err != nil {
		return err
	}
	if !o.yes && !o.app.interactive() {
		return usageErrorf("there is no terminal to ask on: give --yes")
	}
	return nil
}

const periodMembers = `  name         the lock of the job; bytes that are not UTF-8 are replaced
  name_base64  the exact bytes of such a name; else absent
  began_at     when the last used period began, RFC 3339, UTC; null when it is unreadable
  note         who used it up, when, and how long the periods are, as a sentence
  running      whether the lock is held now`

type periodJSON struct {
	Name       string     `json:"name"`
	NameBase64 string     `json:"name_base64,omitempty"`
	BeganAt    *time.Time `json:"began_at"`
	Note       string     `json:"note"`
	Running    bool       `json:"running"`
}

func (o *periodsOptions) run(ctx context.Context, s *session) error {
	all, err := s.snapshot(ctx)
	if err != nil {
		return err
	}
	held := all.held()
	var found []periodJSON
	_, err = s.store.ListPrefix(ctx, s.layout.Periods(), all.view.Fresh().Revision, func(kv protocol.KV) {
		key := s.layout.Parse(kv.Key)
		if key.Kind != protocol.KindPeriod || !o.findsName(key.Lock) {
			return
		}
		period, err := protocol.ParsePeriod(string(kv.Value))
		if err != nil {
			period.Note = string(kv.Value)
		}
		found = append(found, periodJSON{key.Lock, lockjson.Base64(key.Lock), lockjson.OrNull(period.Start),
			period.Note,
			held[key.Lock]})
	})
	if err != nil {
		return s.explain(ctx, "list the periods", err)
	}
	return o.write(found)
}

func (o *periodsOptions) write(found []periodJSON) error {
	if o.format.JSON() {
		return writeLines(o.app.Stdout, found, func(p periodJSON) periodJSON { return p })
	}
	var t term.Table
	now := o.app.Now()
	t.Row("LOCK", "LAST PERIOD BEGAN", "NOW", "USED UP")
	for _, p := range found {
		began := "unreadable"
		running := term.None
		if p.BeganAt != nil {
			began = timeText(*p.BeganAt, now)
		}
		if p.Running {
			running = "running"
		}
		t.Row(text.Visible(p.Name), began, running, text.Prose(p.Note))
	}
	return o.app.writeTable(&t, text.Count(len(found), "job"))
}

// resetPeriod deletes the last period of the job, so that it can run again.
func (o *periodsOptions) resetPeriod(ctx context.Context, s *session) error {
	locks, err := s.locks(nil)
	if err != nil {
		return err
	}
	defer locks.Close()
	period, err := jobs.LastPeriod(ctx, locks, o.job)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil: // an unreadable period can be forgotten, too
		period.Note = err.Error()
	case period.Start.IsZero():
		return noLockErrorf("no period of %s is used up", text.Visible(o.job))
	}
	description := fmt.Sprintf("%s began %s, %s", text.Visible(o.job), timeText(period.Start, o.app.Now()),
		text.Prose(period.Note))
	if !o.yes {
		question := "The last period of " + description + ".\nIf it is forgotten, the next call runs the job. " +
			"Type yes to forget it: "
		if err := o.app.confirm(ctx, question, "", "yes"); err != nil {
			return err
		}
	}
	if err := jobs.ResetPeriod(ctx, locks, o.job); err != nil {
		return s.explain(ctx, "reset the period of "+text.Visible(o.job), err)
	}
	_, err = fmt.Fprintf(o.app.Stdout, "forgot the period of %s\n", description)
	return err
}

// periodFlags has the flags of run for commands that run once per period, or for each tick of a schedule.
type periodFlags struct {
	every        time.Duration // 0: always, or for the tick
	tick         time.Time     // zero: not for a tick
	offset       time.Duration
	retryOnError bool
	skipStatus   int
}

func (p *periodFlags) add(f *pflag.FlagSet) {
	f.DurationVar(&p.every, "once-per", 0, "run the command once per period of this length, across all machines")
	f.Func("once-at", "run the command once for this `time`, such as 2026-08-29T03:00Z, across all machines",
		p.parseTick)
	f.DurationVar(&p.offset, "period-offset", 0,
		"with --once-per: when periods begin, after the full hour or midnight UTC")
	f.BoolVar(&p.retryOnError, "retry-on-error", false,
		"with --once-per or --once-at: a failed command may be run again")
	f.IntVar(&p.skipStatus, "skip-status", ExitOK,
		"status when the lock is not free in time (else 3) or the period or time is used up (else 0)")
	f.Lookup("skip-status").DefValue = ""
}

// parseTick reads what scripts can easily print. A time without a zone is refused, because machines may differ in it.
func (p *periodFlags) parseTick(s string) (err error) {
	if p.tick, err = metadata.ParseTime(s); err == nil {
		return nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02T15:04:05Z0700",
		"2006-01-02T15:04Z0700"} {
		if p.tick, err = time.Parse(layout, s); err == nil && p.tick.Year() >= 1970 {
			return nil
		}
	}
	return errors.New("it must be a time with its zone, such as 2026-08-29T03:00Z or 2026-08-29T03:00:00+02:00, " +
		"or the seconds since 1970")
}

// check returns an error if the flags contradict each other.
func (p *periodFlags) check(t *takeFlags) error {
	periods := t.given.Changed("once-per")
	ticks := t.given.Changed("once-at")
	switch {
	case periods && ticks:
		return usageErrorf("--once-per and --once-at exclude each other")
	case !periods && t.given.Changed("period-offset"):
		return usageErrorf("--period-offset goes with --once-per")
	case !periods && !ticks && t.given.Changed("retry-on-error"):
		return usageErrorf("--retry-on-error goes with --once-per or --once-at")
	case p.skipStatus < 0 || p.skipStatus > 255:
		return usageErrorf("--skip-status is %d: it must be between 0 and 255", p.skipStatus)
	case (periods || ticks) && t.kind() != "":
		return usageErrorf("--once-per and --once-at run one command at a time, so they exclude --semaphore, " +
			"--shared and --exclusive")
	case periods:
		return p.checkPeriods()
	}
	return nil
}

func (p *periodFlags) checkPeriods() error {
	switch {
	case p.every < jobs.MinPeriod || p.every > jobs.MaxPeriod:
		return usageErrorf("--once-per is %v: it must be between %v and %v", p.every, jobs.MinPeriod, jobs.MaxPeriod)
	case p.offset < 0 || p.offset >= p.every:
		return usageErrorf("--period-offset is %v: it must be shorter than --once-per, which is %v, and not negative",
			p.offset, p.every)
	}
	return nil
}
