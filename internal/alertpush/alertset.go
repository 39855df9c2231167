package alertpush

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

const (
	// most is how many alerts are told at once, those that are overdue for the longest time first.
	most = 1000
	// resolvedFor is how long it is told that an alert is over.
	resolvedFor = 15 * time.Minute
	// mostResolved bounds the memory of what is over. What does not fit ends when Alertmanager forgets it.
	mostResolved = 5 * most
	// readFor is how long one look may take to read where locks were taken. The next look goes on with it.
	readFor = time.Second
)

// book is every alert that is told, and those that were until lately.
type book map[key]*entry

type entry struct {
	alert
	needed bool   // at this look
	uuid   string // of the hold that it is about
	frame  string // where that hold was taken
	known  bool   // frame was looked up
}

// open begins a look.
func (b book) open() {
	for _, e := range b {
		e.needed = false
	}
}

// enter notes what is told of an alert now.
func (b book) enter(a alert, uuid string) alert {
	e := b[a.key]
	if e == nil || e.uuid != uuid {
		e = &entry{uuid: uuid}
		b[a.key] = e
	}
	e.alert = a
	e.needed = true
	return a
}

// close ends a look: what is not needed any more is over, and is forgotten after a while. It returns what has just
// ended.
func (b book) close(now time.Time) (over []alert) {
	for k, e := range b {
		switch {
		case e.needed:
		case e.ends.IsZero():
			e.ends = now
			over = append(over, e.alert)
		case e.name == lockAutoUnlocked && !now.Before(e.ends), now.Sub(e.ends) >= resolvedFor,
			len(b) > most+mostResolved:
			delete(b, k)
		}
	}
	return over
}

func (b book) all() []alert {
	all := make([]alert, 0, len(b))
	for _, e := range b {
		all = append(all, e.alert)
	}
	return all
}

// going counts the alerts that are not over.
func (b book) going(now time.Time) (n int) {
	for _, e := range b {
		if e.ends.IsZero() || e.ends.After(now) {
			n++
		}
	}
	return n
}

// needs are the alerts that the locks need now, as many as are told, and when they may need others. An alert that was
// told before and has no room any more is neither told nor ended.
func (p *Pusher) needs(locks []*metadata.Record, now staleness.Moment) (needs []need, next time.Time) {
	for _, r := range locks {
		next = earlier(next, p.judge(r, now, func(n need) {
			needs = append(needs, n)
			if e := p.book[n.key]; e != nil && e.ends.IsZero() {
				e.needed = true
			}
		}))
	}
	slices.SortFunc(needs, func(a, b need) int {
		if c := a.starts.Compare(b.starts); c != 0 {
			return c
		}
		return strings.Compare(a.record.Name, b.record.Name)
	})
	leftOut := max(0, len(needs)-most)
	p.metrics.leftOut.Set(float64(leftOut))
	return needs[:len(needs)-leftOut], next
}

// enter notes the needs in the book and returns what is new in it.
func (p *Pusher) enter(ctx context.Context, needs []need) (news []alert) {
	ctx, cancel := context.WithTimeout(ctx, readFor)
	defer cancel()
	entered := make(map[key]bool, len(needs))
	for _, n := range needs {
		if entered[n.key] { // two names that look alike: the one that is overdue for longer
			continue
		}
		entered[n.key] = true
		frame, known := p.frame(ctx, n)
		before := p.book[n.key]
		a := p.write(n, frame)
		if before == nil || before.uuid != n.record.UUID || !before.same(a) {
			news = append(news, a)
		}
		p.book.enter(a, n.record.UUID)
		e := p.book[n.key]
		e.frame, e.known = frame, known
	}
	return news
}

// frame is where in the code the lock was taken. It is asked for once, and again at the next look when there was no
// answer.
func (p *Pusher) frame(ctx context.Context, n need) (frame string, known bool) {
	if e := p.book[n.key]; e != nil && e.uuid == n.record.UUID && e.known {
		return e.frame, true
	}
	if p.c.Backtrace == nil || ctx.Err() != nil {
		return "", p.c.Backtrace == nil
	}
	backtrace, err := p.c.Backtrace(ctx, n.record.Name, n.record.UUID)
	return firstFrame(backtrace), err == nil
}
