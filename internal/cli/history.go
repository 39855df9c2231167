package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

type historyOptions struct {
	app    *app
	format *term.Format
	globs  globs
	limit  int
}

func newHistory(a *app) *cobra.Command {
	o := &historyOptions{app: a}
	cmd := &cobra.Command{
		Use:   "history [PATTERN...]",
		Short: "Show holds that were auto-unlocked or force-unlocked",
		Long: `Show the holds that the unlocker or an operator ended, newest first. Locks released by their holders
leave no trace here.
A PATTERN selects names: * stands for any text, slashes included, ? for one character.

` + jsonLines + lockjson.EndingShape().Help(),
		Example: `  mutexctl history
  mutexctl history 'billing/*' --limit 10
  mutexctl history -o json | jq -r 'select(.how == "force-unlocked") | [.ended_at, .name, .by, .why] | @tsv'`,
	}
	o.format = term.Output(cmd, term.TableFormat, term.JSONFormat)
	cmd.Flags().IntVar(&o.limit, "limit", 1000, "how many of the newest endings to search")
	o.globs.fromArguments(cmd, o.run)
	return cmd
}

func (o *historyOptions) run(ctx context.Context) error {
	if o.limit <= 0 {
		return usagef("--limit is %d, it must be positive", o.limit)
	}
	s, err := o.app.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	all, err := s.store.History(ctx, o.limit)
	if err != nil {
		return s.explain(ctx, "read the history", err)
	}
	now := o.app.Now()
	var t term.Table
	t.Row("ENDED", "LOCK", "HELD AS", "HOW", "BY", "WHY", askedColumn, extendedColumn, ackColumn,
		"OWNER", "HOST:PID", "HELD")
	for _, e := range all {
		if !o.globs.match(e.Lock) {
			continue
		}
		if o.format.JSON() {
			if err := writeJSON(o.app.Stdout, lockjson.NewEnding(&e, now)); err != nil {
				return err
			}
			continue
		}
		how := shortText(e.Ended)
		if words, known := metadata.EndingOf(e.Ended); known {
			how = words.Word
		}
		t.Row(relative(e.EndedAt.Time, now), text.Visible(e.Lock),
			orNone(shareText(metadata.ShareOf(e.Lock, e.Attributes))),
			how, shortText(e.By), shortText(e.Why), orNone(askedBy(&e)), orNone(givenBy(&e)),
			orNone(lookedAtBy(&e)),
			shortText(e.Owner), hostPID(&e.Holder), age(e.LockedAt.Time, e.EndedAt.Time))
	}
	for _, column := range []string{"HELD AS", askedColumn, extendedColumn, ackColumn} {
		t.DropEmpty(column)
	}
	return t.WriteRows(o.app.Stdout)
}

// The columns of the history that most of it does not need.
const (
	askedColumn    = "ASKED BY"
	extendedColumn = "MORE TIME BY"
	ackColumn      = "ACKNOWLEDGED BY" // of lists, too
)

// askedBy is who asked the holder to finish, and why; empty if nobody did.
func askedBy(e *metadata.Ending) string {
	if e.Asked == nil {
		return ""
	}
	return withReason(e.Asked.By, e.Asked.Reason)
}

// givenBy is who gave the holder more time, how much, and why; empty if nobody did.
func givenBy(e *metadata.Ending) string {
	if e.Extended == nil {
		return ""
	}
	by := e.Extended.By
	if d := e.Extended.Given(); d > 0 {
		by += " +" + text.Duration(d)
	}
	return withReason(by, e.Extended.Reason)
}

// lookedAtBy is who looked at the lock when the hold ended, and the note; empty if nobody did.
func lookedAtBy(e *metadata.Ending) string {
	if e.Acknowledged == nil {
		return ""
	}
	return withReason(e.Acknowledged.By, e.Acknowledged.Note)
}

func withReason(by, reason string) string {
	if reason == "" {
		return shortText(by)
	}
	return shortText(by + ": " + reason)
}
