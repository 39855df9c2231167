package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/headline"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// printHeadline prints the headline and the command to run next, to stderr so that the table on stdout can be piped.
// Unclaimed locks are missing: a single snapshot does not show for how long a lock has been free.
func (all *snapshot) printHeadline(a *app, now time.Time) {
	c := headline.InputOf(all.model(all.combined, now), all.unlockers, now)
	c.Alarm = strings.Join(all.alarms, "; ")
	v := headline.For(c)
	fmt.Fprintln(a.Stderr, v.String(now))
	if command := v.Command(); command != "" {
		fmt.Fprintln(a.Stderr, "next: "+command)
	}
}

// headline returns the headline about one lock; ok is false if nobody holds it.
func (l *lockInfo) headline() (v headline.Headline, ok bool) {
	holders := l.holders()
	if len(holders) == 0 {
		return headline.Headline{}, false
	}
	whole := locks.NewHeldLock(l.Record.Name, holders)
	records := make([]*metadata.Record, len(holders))
	for i, r := range holders {
		records[i] = r.Record
	}
	return headline.ForLock(headline.Input{Now: l.now, Combined: l.combined, Cycles: l.cycles,
		Inconsistent: diagnosis.FindInconsistent(records, nil)}, l.Record.Name, &whole)
}
