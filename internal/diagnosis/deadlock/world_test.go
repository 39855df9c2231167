package deadlock_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

var night = time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)

// world is who holds and waits. A process is called by the name of its owner.
type world struct {
	locks  []*metadata.Record
	queues map[string][]metadata.Waiter
}

func newWorld() *world { return &world{queues: map[string][]metadata.Waiter{}} }

// parse reads a world: "x=a@1" is that a holds x since minute 1, "pool%a@1" that it has a permit, "book&a@1" that it
// reads, and "a>x@2" that it waits.
func parse(t *testing.T, text string) *world {
	t.Helper()
	w := newWorld()
	for _, m := range regexp.MustCompile(`([^ @]+)([=%&>])([^ @]+)@(\d+)`).FindAllStringSubmatch(text, -1) {
		minute, err := strconv.Atoi(m[4])
		if err != nil {
			t.Fatal(err)
		}
		switch m[2] {
		case "=":
			w.holds(m[1], m[3], minute)
		case "%":
			w.share(m[1], m[3], metadata.HoldsPermits, minute)
		case "&":
			w.share(m[1], m[3], metadata.HoldsShared, minute)
		default:
			w.waits(m[1], m[3], minute)
		}
	}
	return w
}

func at(minute int) time.Time { return night.Add(time.Duration(minute) * time.Minute) }

// holds makes a process hold a lock since a minute of the night.
func (w *world) holds(lock, owner string, minute int) *metadata.Record {
	r := &metadata.Record{Name: lock, UUID: "u", Token: 1,
		Holder:   metadata.Holder{Owner: owner, Hostname: owner + "-0", PID: 7},
		LockedAt: at(minute)}
	i, _ := slices.BinarySearchFunc(w.locks, lock,
		func(r *metadata.Record, lock string) int { return strings.Compare(r.Name, lock) })
	w.locks = slices.Insert(w.locks, i, r)
	return r
}

// share is a permit or a reader, by its kind.
func (w *world) share(lock, owner, kind string, minute int) *metadata.Record {
	number := 1
	for slices.ContainsFunc(w.locks,
		func(r *metadata.Record) bool { return r.Name == metadata.ShareName(lock, number) }) {
		number++
	}
	r := w.holds(metadata.ShareName(lock, number), owner, minute)
	r.Attributes = map[string]any{metadata.AttributeKind: kind, metadata.AttributeLimit: json.Number("9")}
	return r
}

func (w *world) waits(owner, lock string, minute int) {
	ahead := len(w.queues[lock])
	t := metadata.Waiter{Lock: lock, ID: fmt.Sprint(owner, ahead), Revision: int64(ahead + 1)}
	t.Owner = owner
	t.Hostname = owner + "-0"
	t.PID = 7
	t.Since = metadata.Time{Time: at(minute)}
	w.queues[lock] = append(w.queues[lock], t)
}

// forget takes away since when these locks are held and waited for.
func (w *world) forget(locks ...string) {
	for _, r := range w.locks {
		if slices.Contains(locks, r.Name) {
			r.LockedAt = time.Time{}
			w.queues[r.Name][0].Since = metadata.Time{}
		}
	}
}

func (w *world) find() []deadlock.Cycle { return deadlock.Find(w.locks, w.queues) }

// told is a cycle in short: "a>y:b b>x:a @5", that a waits for y, held by b, and so on, since minute 5.
func told(c deadlock.Cycle) string {
	var steps []string
	for _, w := range c.Waits {
		var held []string
		for _, p := range w.Held {
			held = append(held, p.Owner)
		}
		steps = append(steps, w.Who.Owner+">"+w.Lock+":"+strings.Join(held, "+"))
	}
	if c.Since.IsZero() {
		return strings.Join(steps, " ") + " @?"
	}
	return fmt.Sprint(strings.Join(steps, " "), " @", int(c.Since.Sub(night)/time.Minute))
}
