package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/verdict"
	"github.com/clustermutex/unlocker/internal/locks"
)

// printVerdict prints the verdict and the command to run next, to stderr so that the table on stdout can be piped.
// Unclaimed locks are missing: a single snapshot does not show for how long a lock has been free.
func (all *snapshot) printVerdict(a *app, now time.Time) {
	c := all.model(all.combined, now).Cluster(all.unlockers, now)
	c.Alarm = strings.Join(all.alarms, "; ")
	v := verdict.Of(c)
	fmt.Fprintln(a.Stderr, v.String(now))
	if command := v.Command(); command != "" {
		fmt.Fprintln(a.Stderr, "next: "+command)
	}
}

// verdict returns the verdict about one lock; ok is false if nobody holds it.
func (l *lockInfo) verdict() (v verdict.Verdict, ok bool) {
	holders := l.holders()
	if len(holders) == 0 {
		return verdict.Verdict{}, false
	}
	whole := locks.Whole(l.Record.Name, holders, *holders[0].Queue)
	return verdict.OfLock(verdict.Cluster{Now: l.now, Combined: l.combined, Cycles: l.cycles}, l.Record.Name, &whole)
}
