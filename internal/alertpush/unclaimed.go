package alertpush

import (
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/alerttext"
	"github.com/clustermutex/unlocker/internal/diagnosis/unclaimed"
)

// maxUnclaimed is how many alerts about locks that nobody takes are pushed, the longest first.
const maxUnclaimed = 100

// unclaimed returns the locks that nobody takes, and when there may be another one.
func (p *Pusher) unclaimed() ([]unclaimed.Lock, time.Duration) {
	if p.c.Unclaimed == nil {
		return nil, 0
	}
	all, next := p.c.Unclaimed()
	return all[:min(len(all), maxUnclaimed)], next
}

// sameUnclaimed reports whether two updates found the same locks.
func sameUnclaimed(a, b []unclaimed.Lock) bool {
	return slices.EqualFunc(a, b, func(a, b unclaimed.Lock) bool {
		return a.Name == b.Name && a.Since.Equal(b.Since) && a.First.ID == b.First.ID
	})
}

// updateUnclaimed stores the locks that nobody takes in the alert set, and returns what is new.
func (p *Pusher) updateUnclaimed(found []unclaimed.Lock) (news []alert) {
	entered := map[key]bool{}
	for _, l := range found {
		a := p.unclaimedAlert(l)
		if entered[a.key] { // two names look alike: the one that has been free for longer wins
			continue
		}
		entered[a.key] = true
		if before := p.alerts[a.key]; before == nil || !before.same(a) {
			news = append(news, a)
		}
		p.alerts.set(a, "")
	}
	return news
}

// unclaimedAlert returns the alert about a lock that nobody takes. It has no number of waiters, which changes all the
// time.
func (p *Pusher) unclaimedAlert(l unclaimed.Lock) alert {
	first := holder{Hold: alerttext.Hold{Lock: l.Name, Owner: l.First.Owner, Host: l.First.Hostname},
		purpose: l.First.Purpose}
	a := alert{key: p.keyOf(lockUnclaimed, l.Name, l.First.Owner, nil), severity: "warning", starts: l.Since}
	a.notes = p.notes(a.name, first, alerttext.Unclaimed(first.Hold, l.Since))
	return a
}
