package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/etcdlocks"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

type showOptions struct {
	app    *app
	format *term.Format
	names  names
	raw    bool
}

func newShow(a *app) *cobra.Command {
	o := &showOptions{app: a}
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show everything about one lock",
		Long: `Show who holds a lock, where, since when and why; when it alerts and when it is auto-unlocked; its
backtrace; what is wrong with its record; and who waits for it. Exits with 4 when nobody holds it, and
then shows who waits, lock delays, and the last hold that an unlocker or an operator ended.

For a semaphore or read-write lock, show lists all holders and the free permits. To see one holder
in full, give its own name, such as pool#2.`,
		Example: `  mutexctl show nightly/report
  mutexctl show nightly/report -o json | jq -r .backtrace`,
		ValidArgsFunction: a.completeNames,
	}
	o.format = term.Output(cmd, term.TableFormat, term.JSONFormat)
	o.names.flag(cmd)
	flags.EtcdLocks(cmd.Flags(), &a.etcdLocks)
	cmd.Flags().BoolVar(&o.raw, "raw", false, "also show the keys as they are stored")
	o.names.onLock(cmd, a, nil, o.run)
	return cmd
}

func (o *showOptions) run(ctx context.Context, s *session, name string) error {
	l, err := s.lockInfo(ctx, name)
	if err != nil {
		return err
	}
	if !l.isEmpty() {
		if err := o.print(l); err != nil {
			return err
		}
	}
	if found, err := o.printLeased(ctx, s, name); found > 0 || err != nil {
		return err
	}
	switch {
	case l.isHeld():
		return nil
	case len(l.Delays) > 0:
		return noLockErrorf("%s", s.delayText(name, l.Delays))
	}
	return noLockErrorf("nobody holds %s%s", text.Visible(name), s.otherKeys(ctx, name))
}

func (o *showOptions) print(l *lockInfo) error {
	if o.format.JSON() {
		return writeJSON(o.app.Stdout, l.json(o.raw))
	}
	p := newLockReport(l, o.app.Stdout)
	if o.raw {
		p.fields(l.Record.Fields)
	}
	return p.write(o.app.Stdout)
}

// maxEndingsRead is how many of the newest endings of all locks are searched for those of one lock.
const maxEndingsRead = 1000

// diagnose diagnoses the holder of a lock from its record, the duration of past holds that others than their holders
// ended, and the locks that its process waits for.
func (s *session) diagnose(ctx context.Context, l *lockInfo) error {
	r := &l.Record.Record
	f := diagnosis.Input{Record: r, Now: l.now, ReportInterval: diagnosis.ReportInterval(r)}
	if l.row != nil {
		f.Judged = l.row.Judgement
	}
	if r.Token == 0 || r.ProvenDead() {
		l.diagnosis = diagnosis.Diagnose(f)
		return nil
	}
	past, err := s.endingsOf(ctx, r.Name)
	if err != nil {
		return err
	}
	f.AddPastHolds(past)
	request, cancel := s.request(ctx)
	defer cancel()
	queues, err := s.store.ReadQueues(request)
	if err != nil {
		return s.explain(ctx, "read the waiters for all locks", err)
	}
	visited := []*metadata.Record{r}
	f.Waits, err = diagnosis.WaitChain(r, queues, func(lock string) ([]*metadata.Record, error) {
		read, err := s.read(ctx, lock)
		visited = append(visited, read.Holders()...)
		return read.Holders(), err
	})
	slices.SortFunc(visited, func(a, b *metadata.Record) int { return strings.Compare(a.Name, b.Name) })
	l.cycles = deadlock.Find(visited, queues)
	l.diagnosis = diagnosis.Diagnose(f)
	return err
}

// endingsOf returns the recorded endings of a lock or of its shares, among the newest endings of all locks.
func (s *session) endingsOf(ctx context.Context, lock string) ([]metadata.Ending, error) {
	request, cancel := s.request(ctx)
	defer cancel()
	all, err := s.store.ReadHistory(request, maxEndingsRead)
	if err != nil {
		return nil, s.explain(ctx, "read the history of "+text.Visible(lock), err)
	}
	return slices.DeleteFunc(all, func(e metadata.Ending) bool {
		return e.Name != lock && e.Share().LockName != lock
	}), nil
}

// endedText returns when the holder ended; empty if it is not proven dead.
func endedText(r *metadata.Record, now time.Time) string {
	if !r.ProvenDead() {
		return ""
	}
	return relative(protocol.EndedAt(r.Death), now)
}

// deathText describes the proof of a holder's death, and what contradicts it.
func deathText(r *metadata.Record, now time.Time) string {
	words := protocol.DescribeStatement(r.Death, now)
	switch {
	case r.Disputed():
		return words + ", but the holder called alive since: one of the two is wrong"
	case !r.ProvenDead():
		return words + ", but the work outlives its process"
	}
	return words
}

// witness adds the rows about what witnesses state about the holder.
func (p *lockReport) witness(r *metadata.Record) {
	for _, s := range []*metadata.Statement{r.Death, r.Suspicion} {
		if s == nil {
			continue
		}
		words := "suspected, not proven: " + protocol.DescribeStatement(s, p.now)
		switch {
		case s == r.Death:
			words = deathText(r, p.now)
		case s.Cause == metadata.CauseCommandLives:
			words = protocol.DescribeStatement(s, p.now)
		}
		if s.Reason != "" {
			words += "; " + text.Prose(s.Reason)
		}
		p.row("witness", words+" (witness "+shortText(s.By)+")")
	}
}

// printLeased prints the locks of other libraries with this name, if the flag names them: a queue, a single key, or
// both. It returns how many there are.
func (o *showOptions) printLeased(ctx context.Context, s *session, name string) (found int, err error) {
	if !slices.ContainsFunc(o.app.etcdLocks, func(prefix string) bool { return strings.HasPrefix(name+"/", prefix) }) {
		return 0, nil
	}
	others, err := etcdlocks.Load(ctx, []string{name}, s.layout, s.store)
	if err != nil {
		return 0, s.explain(ctx, "read the locks of other libraries", err)
	}
	rows := slices.DeleteFunc(others, func(r *locks.Row) bool { return r.Name != name })
	p := &lockReport{now: o.app.Now()}
	if o.format.JSON() {
		return len(rows), writeLines(o.app.Stdout, rows, func(r *locks.Row) any { return lockjson.New(r, p.now) })
	}
	for _, row := range rows {
		p.row("lock", text.Visible(name))
		for _, f := range row.LeasedFacts(p.now) {
			p.row(f.Label, text.Visible(strings.TrimPrefix(f.Command+", "+f.Value, ", ")))
		}
	}
	return len(rows), p.write(o.app.Stdout)
}

// otherKeys notes that other libraries have keys below the name of a lock, if we may read them.
func (s *session) otherKeys(ctx context.Context, name string) string {
	n := 0
	_, err := s.store.ListPrefix(ctx, name+"/", 0, func(kv protocol.KV) {
		if kv.IsContender() {
			n++
		}
	})
	if err != nil || n == 0 {
		return ""
	}
	return "; " + otherKeysNote(n, name+"/")
}

func otherKeysNote(n int, prefix string) string {
	return fmt.Sprintf("%s of another lock library below %s: --etcd-locks %[2]s shows them", text.Count(n, "key"),
		text.ShellWord(prefix))
}
