package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/cli/holdtimes"
	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// defaultRevisions of etcd are read unless the flag says otherwise: with two unlockers and little else, half a day.
const defaultRevisions = 100_000

type suggestOptions struct {
	listing
	revisions int64
}

func newSuggest(a *app) *cobra.Command {
	o := &suggestOptions{listing: listing{app: a}}
	cmd := &cobra.Command{
		Use:   "suggest [PATTERN...]",
		Short: "Suggest deadlines from how long locks were held",
		Long: `Show how long each lock was held, and the deadlines that this suggests. It reads the revisions that
etcd still has; compaction removes older ones. Unlockers write every second, which dates the revisions:
times are up to two seconds too long, and nothing is measured while no unlocker runs.
A PATTERN selects names: * stands for any text, slashes included, ? for one character.

HOLDS counts holds that their holders ended. One that an unlocker or an operator ended says nothing
about how long the work takes, so it is not in the percentiles. MAX HELD and MAX WAIT include current
holds and waits. AUTO-UNLOCKED is how many holds in the history ended because of their deadline.

From ` + strconv.Itoa(holdtimes.MinHolds) + ` holds on, it suggests, rounded up:

  ALERT         twice the 99th percentile, at least 30 seconds
  AUTO-UNLOCK   five times the 99th percentile, at least twice the longest hold and one minute

The percentile is of the longest time in each hold without a call of alive, which postpones the
deadlines. No auto-unlock is suggested for a lock with a heartbeat: there it only decides how soon a
dead holder's lock is free.

This costs etcd memory, about as much as was written in the revisions that are read.

` + jsonLines + lockjson.SuggestionShape().Help(),
		Example: `  mutexctl suggest
  mutexctl suggest 'billing/*' --revisions 1000000
  mutexctl suggest -o json | jq -r 'select(.suggested_auto_unlock_after_seconds > .auto_unlock_after_seconds) | .name'`,
	}
	o.format = term.Output(cmd, term.TableFormat, term.JSONFormat)
	cmd.Flags().Int64Var(&o.revisions, "revisions", defaultRevisions,
		"how many of etcd's newest revisions to read, at most")
	o.globs.fromArguments(cmd, o.run)
	return cmd
}

// suggested is a row: a lock, and how many of its holds the history has as auto-unlocked.
type suggested struct {
	*holdtimes.Lock
	autoUnlocked int
}

func (o *suggestOptions) run(ctx context.Context) error {
	if o.revisions <= 0 {
		return usagef("--revisions is %d: it must be positive", o.revisions)
	}
	s, err := o.app.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	past, err := s.past(ctx, o.revisions)
	if err != nil {
		return err
	}
	unlocked, err := s.autoUnlocked(ctx)
	if err != nil {
		return err
	}
	rows := o.rows(past.Locks(o.app.Now()), unlocked)
	if o.format.JSON() {
		return writeLines(o.app.Stdout, rows, suggestionJSON)
	}
	return o.app.writeTable(suggestionTable(rows), suggestionNote(past.Span(), rows))
}

// past reads what etcd still has of the past.
func (s *session) past(ctx context.Context, revisions int64) (*holdtimes.Past, error) {
	past := holdtimes.New(s.layout)
	records := protocol.Gatherer{Each: func(lock string, fields []metadata.Field, foreign []string) {
		past.Began(new(metadata.DecodeRecord(lock, fields, foreign...)))
	}}
	standing := func(kv protocol.KV) {
		switch key := s.layout.Parse(kv.Key); key.Kind {
		case protocol.KindField, protocol.KindForeign:
			records.Take(key, kv)
		case protocol.KindTicket:
			if w := lockstore.Waiter(key, kv); !w.Holding {
				past.Joined(&w)
			}
		}
	}
	flushed := false
	err := s.store.Past(ctx, revisions, standing, func(revision int64, events []protocol.Event) {
		if !flushed {
			records.Flush()
			flushed = true
		}
		past.Apply(revision, events)
	})
	if err != nil {
		return nil, s.explain(ctx, "read etcd's past revisions", err)
	}
	if !flushed {
		records.Flush()
	}
	return past, nil
}

// autoUnlocked counts the holds in the history that ended because of their deadline, by lock.
func (s *session) autoUnlocked(ctx context.Context) (map[string]int, error) {
	all, err := s.store.History(ctx, lockstore.DefaultHistoryMax)
	if err != nil {
		return nil, s.explain(ctx, "read the history", err)
	}
	counts := map[string]int{}
	for _, e := range all {
		if e.Ended == metadata.EndedAutoUnlocked {
			counts[cmp.Or(metadata.ShareOf(e.Lock, e.Attributes).Lock, e.Lock)]++
		}
	}
	return counts, nil
}

// rows are the locks that were asked for, by name. Those that only the history knows are among them.
func (o *suggestOptions) rows(locks []*holdtimes.Lock, unlocked map[string]int) []suggested {
	var rows []suggested
	for _, l := range locks {
		rows = append(rows, suggested{l, unlocked[l.Name]})
		delete(unlocked, l.Name)
	}
	for name, n := range unlocked {
		rows = append(rows, suggested{&holdtimes.Lock{Name: name}, n})
	}
	slices.SortFunc(rows, func(a, b suggested) int { return cmp.Compare(a.Name, b.Name) })
	return slices.DeleteFunc(rows, func(r suggested) bool { return !o.globs.match(r.Name) })
}

func suggestionJSON(r suggested) lockjson.Suggestion {
	j := lockjson.Suggestion{
		Name: r.Name, NameBase64: lockjson.Base64(r.Name), Holds: len(r.Held), Unmeasured: r.Unmeasured,
		EndedByOthers: r.EndedByOthers, AutoUnlocked: r.autoUnlocked,
		Longest: lockjson.Seconds(r.Longest), LongestWait: lockjson.Seconds(r.LongestWait), Heartbeat: r.Beats,
		AlertAfter: lockjson.Seconds(r.AlertAfter), UnlockAfter: lockjson.Seconds(r.AutoUnlockAfter),
	}
	if len(r.Held) > 0 {
		j.Median = lockjson.Seconds(holdtimes.Percentile(r.Held, 50))
		j.P95 = lockjson.Seconds(holdtimes.Percentile(r.Held, 95))
		j.P99 = lockjson.Seconds(holdtimes.Percentile(r.Held, 99))
	}
	if s, ok := r.Suggest(); ok {
		j.AlertBetter = lockjson.Seconds(s.AlertAfter)
		j.UnlockBetter = lockjson.Seconds(s.AutoUnlockAfter)
	}
	return j
}

func suggestionTable(rows []suggested) *term.Table {
	t := &term.Table{}
	t.Row("LOCK", "HOLDS", "P50", "P95", "P99", "MAX HELD", "MAX WAIT", "AUTO-UNLOCKED", "ALERT", "SUGGESTED ALERT",
		"AUTO-UNLOCK", "SUGGESTED AUTO-UNLOCK")
	for _, r := range rows {
		var percentiles [3]string
		for i, percent := range []int{50, 95, 99} {
			percentiles[i] = term.None
			if len(r.Held) > 0 {
				percentiles[i] = length(holdtimes.Percentile(r.Held, percent))
			}
		}
		alertAfter, unlockAfter := "too few holds", term.None
		if s, ok := r.Suggest(); ok {
			alertAfter = length(s.AlertAfter)
			unlockAfter = length(s.AutoUnlockAfter)
			if r.Beats {
				unlockAfter = "heartbeat"
			}
		}
		t.Row(text.Visible(r.Name), strconv.Itoa(len(r.Held)), percentiles[0], percentiles[1], percentiles[2],
			length(r.Longest), length(r.LongestWait), strconv.Itoa(r.autoUnlocked), length(r.AlertAfter), alertAfter,
			length(r.AutoUnlockAfter), unlockAfter)
	}
	return t
}

// length is a length of time, rounded up to a second; a dash if it is not known.
func length(d time.Duration) string {
	if d <= 0 {
		return term.None
	}
	return text.Exact((d + time.Second - 1).Truncate(time.Second))
}

// suggestionNote says below the table what it is made of.
func suggestionNote(span time.Duration, rows []suggested) string {
	if span == 0 {
		return "no unlocker ran in the time that etcd still has, so it is unknown how long locks were held"
	}
	holds, unmeasured := 0, 0
	for _, r := range rows {
		holds += len(r.Held)
		unmeasured += r.Unmeasured
	}
	note := fmt.Sprintf("%s in the last %s that etcd still has", text.Count(holds, "hold"), text.Duration(span))
	if unmeasured > 0 {
		note += fmt.Sprintf("; %d more while no unlocker ran, of unknown length", unmeasured)
	}
	return note
}
