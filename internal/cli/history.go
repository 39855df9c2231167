package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

type historyOptions struct {
	listing
	limit int
}

func newHistory(a *app) *cobra.Command {
	o := &historyOptions{listing: listing{app: a, about: locks.AboutEndings}}
	cmd := &cobra.Command{
		Use:   "history [QUERY...]",
		Short: "Show holds that were auto-unlocked or force-unlocked",
		Long: `Show the holds that the unlocker or an operator ended, newest first. Locks released by their holders
leave no trace here.
A QUERY selects some of them, by their state and age at the end: see "mutexctl help query".`,
		Example: `  mutexctl history 'billing/* ended:force-unlocked' --limit 10
  mutexctl history -o json | jq -r 'select(.how == "force-unlocked") | [.ended_at, .name, .by, .why] | @tsv'`,
	}
	o.format = term.Output(cmd, term.TableFormat, term.WideFormat, term.JSONFormat)
	cmd.Flags().IntVar(&o.limit, "limit", 1000, "how many of the newest endings to search")
	flags.Positive(cmd.Flags(), "limit")
	o.fromArguments(cmd, func(ctx context.Context) error { return a.withSession(ctx, o.run) })
	return cmd
}

func (o *historyOptions) run(ctx context.Context, s *session) error {
	all, err := s.store.ReadHistory(ctx, o.limit)
	if err != nil {
		return s.explain(ctx, "read the history", err)
	}
	now := o.app.Now()
	all = slices.DeleteFunc(all, func(e metadata.Ending) bool {
		subject := locks.SubjectOfEnding(&e)
		return !o.query.Matches(&subject, e.EndedAt.Time)
	})
	if !o.format.JSON() {
		return o.table(all, now)
	}
	return writeLines(o.app.Stdout, all, func(e metadata.Ending) any { return lockjson.NewEnding(&e, now) })
}

func (o *historyOptions) table(all []metadata.Ending, now time.Time) error {
	t := term.Table{}
	t.Row("ENDED", "LOCK", "HELD AS", "HOW", "BY", "ACTIONS", "OWNER", "HOST:PID", "HELD", "WHY")
	for i := range all {
		e := &all[i]
		how := fullText(e.Cause)
		if words, known := metadata.EndingWordsFor(e.Cause); known {
			how = words.Word
		}
		t.Row(relative(e.EndedAt.Time, now), text.Visible(e.Name),
			orNone(protocol.DescribeShare(e.Share())), how, fullText(e.By),
			orNone(strings.Join(protocol.DescribePastActions(e, now), "; ")), fullText(e.Owner),
			locks.HostPID(fullText(e.Hostname), e.PID), age(e.LockedAt.Time, e.EndedAt.Time), fullText(e.Reason))
	}
	t.DropEmpty("HELD AS", "ACTIONS")
	cut := t.Fit(o.app.width(o.format), "HELD AS", "ACTIONS", "HELD", "BY", "HOST:PID", "OWNER")
	return o.app.writeTable(&t, cut, text.Count(len(all), "hold"), o.unknownKey(len(all)))
}
