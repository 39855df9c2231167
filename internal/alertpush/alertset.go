package alertpush

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

const (
	// maxAlerts is how many alerts are pushed at most, the longest overdue first.
	maxAlerts = 1000
	// resolvedFor is how long an alert that is over is sent as resolved.
	resolvedFor = 15 * time.Minute
	// maxResolved bounds the memory for resolved alerts. Those that do not fit end when Alertmanager forgets them.
	maxResolved = 5 * maxAlerts
	// readFor is how long one update may take to read where locks were taken. The next update continues.
	readFor = time.Second
)

// alertSet holds the active alerts and those recently resolved.
type alertSet map[key]*entry

type entry struct {
	alert
	needed bool   // by this update
	uuid   string // of the hold that the alert is about
	frame  string // where in the code that hold was taken
	known  bool   // frame was read
}

func (s alertSet) begin() {
	for _, e := range s {
		e.needed = false
	}
}

// set stores the current state of an alert about a hold, and reports whether Alertmanager need receive it.
func (s alertSet) set(a alert, uuid string) (news bool) {
	e := s[a.key]
	if e == nil || e.uuid != uuid {
		e = &entry{uuid: uuid}
		s[a.key] = e
	}
	news = !e.same(a)
	e.alert = a
	e.needed = true
	return news
}

// finish ends an update: alerts that are no longer needed are over, and are forgotten after a while. It returns those
// that have just ended.
func (s alertSet) finish(now time.Time) (over []alert) {
	for k, e := range s {
		switch {
		case e.needed:
		case e.ends.IsZero():
			e.ends = now
			over = append(over, e.alert)
		case e.name == lockAutoUnlocked && !now.Before(e.ends), now.Sub(e.ends) >= resolvedFor,
			len(s) > maxAlerts+maxResolved:
			delete(s, k)
		}
	}
	return over
}

func (s alertSet) all() []alert {
	all := make([]alert, 0, len(s))
	for _, e := range s {
		all = append(all, e.alert)
	}
	return all
}

// active counts the alerts that are not over.
func (s alertSet) active(now time.Time) (n int) {
	for _, e := range s {
		if e.ends.IsZero() || e.ends.After(now) {
			n++
		}
	}
	return n
}

// needs returns the alerts that the locks need now, as many as are pushed, and when they may need others. An alert that
// was pushed before and no longer fits is neither pushed nor ended.
func (p *Pusher) needs(locks []*metadata.Record, now staleness.Moment) (needs []need, next time.Time) {
	for _, r := range locks {
		next = protocol.Earlier(next, p.judge(r, now, func(n need) {
			n.record = r
			needs = append(needs, n)
			if e := p.alerts[n.key]; e != nil && e.ends.IsZero() {
				e.needed = true
			}
		}))
	}
	slices.SortFunc(needs, func(a, b need) int {
		return cmp.Or(a.starts.Compare(b.starts), strings.Compare(a.record.Name, b.record.Name))
	})
	leftOut := max(0, len(needs)-maxAlerts)
	p.metrics.leftOut.Set(float64(leftOut))
	return needs[:len(needs)-leftOut], next
}

// update stores the needs in the alert set and returns what is new.
func (p *Pusher) update(ctx context.Context, needs []need) (news []alert) {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	entered := make(map[key]bool, len(needs))
	for _, n := range needs {
		if entered[n.key] { // two names look alike: the one that is overdue for longer wins
			continue
		}
		entered[n.key] = true
		frame, known := p.frame(ctx, n)
		if a := p.write(n, frame); p.alerts.set(a, n.record.UUID) {
			news = append(news, a)
		}
		e := p.alerts[n.key]
		e.frame, e.known = frame, known
	}
	return news
}

// frame returns where in the code the lock was taken. It is read once per hold, and again at the next update if that
// failed.
func (p *Pusher) frame(ctx context.Context, n need) (frame string, known bool) {
	if e := p.alerts[n.key]; e != nil && e.uuid == n.record.UUID && e.known {
		return e.frame, true
	}
	if p.c.Backtrace == nil || ctx.Err() != nil {
		return "", p.c.Backtrace == nil
	}
	backtrace, err := p.c.Backtrace(ctx, n.record.Name, n.record.UUID)
	return firstFrame(backtrace), err == nil
}
