package locks

import (
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/compact"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// world is what a source of locks holds, and how it changes.
type world struct {
	random *rand.Rand
	now    time.Time
	locks  []*compact.Record
	queues map[string][]metadata.Waiter
	count  int64
}

func newWorld(locks int) *world {
	w := &world{random: rand.New(rand.NewPCG(5, 6)), now: time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC),
		queues: map[string][]metadata.Waiter{}}
	for i := range locks {
		w.locks = append(w.locks, w.record(fmt.Sprintf("lock-%05d", i)))
	}
	return w
}

func (w *world) record(name string) *compact.Record {
	w.count++
	alert := w.now.Add(time.Duration(w.random.IntN(7200)) * time.Second)
	r := &metadata.Record{Name: name, UUID: fmt.Sprintf("00000000-0000-4000-8000-%012d", w.count),
		Token: w.count, Revision: w.count, DeadlineRevision: w.count,
		Owner: fmt.Sprint("owner-", w.random.IntN(9)), Hostname: fmt.Sprint("host-", w.random.IntN(99)),
		LockedAt: w.now.Add(-time.Minute), AlertAt: alert, AutoUnlockAt: alert.Add(time.Hour)}
	if strings.Contains(name, "#") {
		r.Attributes = map[string]any{metadata.AttributeKind: metadata.HoldsPermits}
	}
	return compact.Of(r)
}

// turn changes some locks and queues, and lets some time pass.
func (w *world) turn() {
	w.now = w.now.Add(time.Duration(w.random.IntN(330)-30) * time.Second) // clocks are set back, too
	w.locks = slices.Clone(w.locks)
	for _, lock := range slices.Sorted(maps.Keys(w.queues)) {
		if w.random.IntN(8) == 0 {
			w.queue(lock)
		}
	}
	for range w.random.IntN(1 + w.random.IntN(40)) {
		i := w.random.IntN(len(w.locks) + 1)
		if i == len(w.locks) { // after all others
			w.put(w.record(fmt.Sprintf("z-%05d", w.count)))
			continue
		}
		switch name := w.locks[i].Name; w.random.IntN(7) {
		case 0:
			w.locks = slices.Delete(w.locks, i, i+1)
		case 1: // a whole range ends
			w.locks = slices.Delete(w.locks, i, min(len(w.locks), i+w.random.IntN(3*runSize)))
		case 2:
			w.locks[i] = w.record(name)
		case 3:
			w.put(w.record(name + "+"))
		case 4: // shares, for which others wait
			lock, _, _ := strings.Cut(name, "#")
			w.put(w.record(fmt.Sprintf("%s#%d", lock, 1+w.random.IntN(12))))
			w.queue(lock)
		case 5: // many are taken beside each other
			for j := range w.random.IntN(2 * runSize) {
				w.put(w.record(fmt.Sprintf("%s-%03d", name, j)))
			}
		default:
			w.queue(name)
		}
	}
	w.locks = w.locks[:min(len(w.locks), 40*runSize)]
	for len(w.locks) < runSize { // or not much would be left
		w.put(w.record(fmt.Sprintf("a-%05d", w.count)))
	}
}

func (w *world) put(r *compact.Record) {
	i := indexOfLock(w.locks, r.Name)
	if i < len(w.locks) && w.locks[i].Name == r.Name {
		w.locks[i] = r
		return
	}
	w.locks = slices.Insert(w.locks, i, r)
}

// queue makes the queue of a lock longer, or ends it.
func (w *world) queue(lock string) {
	if len(w.queues[lock]) > 0 && w.random.IntN(3) == 0 {
		delete(w.queues, lock)
		return
	}
	w.count++
	waiter := metadata.Waiter{Revision: w.count,
		Ticket: metadata.Ticket{Since: metadata.Time{Time: w.now.Add(-time.Minute)}}}
	w.queues[lock] = append(slices.Clone(w.queues[lock]), waiter)
}

func (w *world) snapshot(last *Snapshot) *Snapshot {
	queues := map[string][]metadata.Waiter{}
	for lock, queue := range w.queues {
		queues[lock] = queue
	}
	return build(last, w.locks, queues, judging{policy: staleness.DefaultPolicy()}, staleness.Moment{Wall: w.now})
}

func TestASnapshotIsTheSameWhateverItTookOver(t *testing.T) {
	for _, locks := range []int{0, 1, runSize, 20 * runSize} {
		w := newWorld(locks)
		grown := w.snapshot(nil)
		query := ParseQuery("owner:owner-3")
		taken, troubled := 0, 0
		for turn := range 50 {
			orders := []Order{
				{By: MostUrgent}, {By: "name", Reverse: true}, {By: "host"}, {By: "unlock", Reverse: true},
			}
			for _, o := range orders { // so that the next snapshot has sortings and results to begin with
				grown.InOrder(o)
			}
			if _, err := grown.Result(t.Context(), query, orders[0], w.now); err != nil {
				t.Fatal(err)
			}
			before := grown
			w.turn()
			grown = w.snapshot(before)
			fresh := w.snapshot(nil)
			where := fmt.Sprintf("%d locks at first, turn %d", locks, turn)
			compareSnapshots(t, where, grown, fresh)
			for _, o := range orders {
				compareRows(t, fmt.Sprintf("%s, by %s", where, o), grown.InOrder(o), fresh.InOrder(o))
				compareGroups(t, fmt.Sprintf("%s, by %s", where, o), &Result{Rows: grown.InOrder(o)},
					&Result{Rows: fresh.InOrder(o)})
			}
			got, err := grown.Result(t.Context(), query, orders[0], w.now)
			if err != nil {
				t.Fatal(err)
			}
			want, err := fresh.Result(t.Context(), query, orders[0], w.now)
			if err != nil {
				t.Fatal(err)
			}
			compareRows(t, where+", a search", got.Rows, want.Rows)
			compareGroups(t, where+", a search", got, want)
			if got.Version != want.Version || !reflect.DeepEqual(got.Counts, want.Counts) {
				t.Fatalf("%s, a search: %+v, want %+v", where, got.Counts, want.Counts)
			}
			troubled += grown.All.Alerting
			for r := range grown.Rows.All() {
				if before.Find(r.Name) == r {
					taken++
				}
			}
		}
		if taken == 0 || troubled == 0 {
			t.Errorf("%d locks at first: %d rows were taken over, %d alerted", locks, taken, troubled)
		}
	}
}

func compareSnapshots(t *testing.T, where string, got, want *Snapshot) {
	t.Helper()
	compareRows(t, where, got.Rows, want.Rows)
	sound := func(r *Row) bool { return r.Display == Held }
	troubled := slices.DeleteFunc(slices.Collect(want.Rows.All()), sound)
	compareRows(t, where+", troubled", rowsOf(slices.Collect(got.Troubled())), rowsOf(troubled))
	if !reflect.DeepEqual(got.All, want.All) || !got.Next.Equal(want.Next) || got.Version != want.Version {
		t.Fatalf("%s: %+v, next %v, want %+v, next %v", where, got.All, got.Next, want.All, want.Next)
	}
	if !reflect.DeepEqual(got.Worst(), want.Worst()) {
		t.Fatalf("%s: the worst is %+v, want %+v", where, got.Worst(), want.Worst())
	}
	for i, b := range got.blocks {
		if got.Rows.runs[i] != &b.run || len(b.rows) != len(b.locks) {
			t.Fatalf("%s: block %d of %d rows and %d locks is not the snapshot's", where, i, len(b.rows), len(b.locks))
		}
	}
}

// compareRows compares two lists, of which the first may have grown, and looks at its runs.
func compareRows(t *testing.T, where string, got, want Rows) {
	t.Helper()
	if got.Len() != want.Len() {
		t.Fatalf("%s: %d rows, want %d", where, got.Len(), want.Len())
	}
	next, stop := iter.Pull(want.All())
	defer stop()
	i := 0
	for k, run := range got.runs {
		if n := len(run.rows); n == 0 || n > 2*runSize || n < runSize/2 && k+1 < len(got.runs) {
			t.Fatalf("%s: run %d of %d has %d rows", where, k, len(got.runs), n)
		}
		for _, r := range run.rows {
			if want, _ := next(); r != want && !reflect.DeepEqual(r, want) {
				t.Fatalf("%s: row %d is %+v, want %+v", where, i, r, want)
			}
			if got.At(i) != r {
				t.Fatalf("%s: row %d is another one by its index", where, i)
			}
			i++
		}
	}
}

func compareGroups(t *testing.T, where string, got, want *Result) {
	t.Helper()
	if !reflect.DeepEqual(got.ByOwner(), want.ByOwner()) {
		t.Fatalf("%s: the groups are %+v, want %+v", where, got.ByOwner(), want.ByOwner())
	}
}

// TestAListThatShrinksAndGrowsIsTheSameAsANewOne changes few rows at a time, until none is left, and puts them back.
func TestAListThatShrinksAndGrowsIsTheSameAsANewOne(t *testing.T) {
	for _, o := range []Order{{By: "name", Reverse: true}, {By: "alert"}} {
		w := newWorld(6 * runSize)
		in := slices.Collect(w.snapshot(nil).Rows.All())
		var out []*Row
		list := rowsOf(o.Sort(in))
		step := func(from, to *[]*Row, n int) {
			var moved []*Row
			for range min(n, len(*from)) {
				i := w.random.IntN(len(*from))
				r := (*from)[i]
				*from = slices.Delete(*from, i, i+1)
				at, _ := indexOf(*to, r.Name)
				*to = slices.Insert(*to, at, r)
				at, _ = indexOf(moved, r.Name)
				moved = slices.Insert(moved, at, r)
			}
			c := changes{few: true, went: moved}
			if to == &in {
				c = changes{few: true, came: moved}
			}
			list = c.merge(o, list, c.came)
			compareRows(t, fmt.Sprintf("by %s, %d rows", o, len(in)), list, rowsOf(o.Sort(in)))
		}
		for len(in) > 0 {
			step(&in, &out, 1+w.random.IntN(50))
		}
		for len(out) > 0 {
			step(&out, &in, 1+w.random.IntN(50))
		}
	}
}

// TestASliceOfAListHasTheRowsBetweenItsEnds tries all slices of a list of several runs that begin or end near the end
// of a run.
func TestASliceOfAListHasTheRowsBetweenItsEnds(t *testing.T) {
	for _, n := range []int{0, 1, runSize, 3*runSize + 7} {
		rows := make([]*Row, n)
		for i := range rows {
			rows[i] = &Row{Record: compact.Of(&metadata.Record{Name: fmt.Sprintf("%04d", i)})}
		}
		list := rowsOf(rows)
		ends := append([]int{0}, list.ends...)
		var near []int
		for _, end := range ends {
			for i := max(0, end-2); i <= min(n, end+2); i++ {
				near = append(near, i)
			}
		}
		for _, from := range near {
			for _, to := range near {
				if from <= to && !slices.Equal(list.Slice(from, to), rows[from:to]) {
					t.Errorf("%d rows: the slice from %d to %d is another one", n, from, to)
				}
			}
			if i, found := list.named(fmt.Sprintf("%04d", from)); i != from || found != (from < n) {
				t.Errorf("%d rows: the one named %d is at %d (%v)", n, from, i, found)
			}
			if i, found := list.named(fmt.Sprintf("%04d!", from)); i != min(n, from+1) || found {
				t.Errorf("%d rows: one that follows the one named %d would be at %d (%v)", n, from, i, found)
			}
		}
	}
}

func TestGroupsOfPiecesAreThoseOfAllRows(t *testing.T) {
	w := newWorld(4000)
	rows := slices.Collect(w.snapshot(nil).InOrder(Order{By: MostUrgent}).All())
	want := map[string]*Group{}
	for _, g := range byOwner(rows) {
		want[g.Owner] = &g
	}
	for _, at := range []int{0, 1, 30, 2000, len(rows)} {
		got := map[string]*Group{}
		for _, g := range slices.Concat(byOwner(rows[:at]), byOwner(rows[at:])) {
			join(got, &g)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("divided at %d: %v, want %v", at, got, want)
		}
	}
}

// TestGroupsOfWhatDidNotChangeAreTakenOver changes locks in one place at a time: one, or so many that runs come and go.
func TestGroupsOfWhatDidNotChangeAreTakenOver(t *testing.T) {
	w := newWorld(10 * stretchRuns * runSize)
	group := func(s *Snapshot) *Result {
		r, err := s.Result(t.Context(), ParseQuery(""), Order{By: "name"}, w.now)
		if err != nil {
			t.Fatal(err)
		}
		r.ByOwner()
		return r
	}
	grown := w.snapshot(nil)
	before := group(grown)
	for turn := range 12 {
		w.locks = slices.Clone(w.locks)
		i := w.random.IntN(len(w.locks) - runSize)
		switch name := w.locks[i].Name; turn % 3 {
		case 0:
			w.locks[i] = w.record(name)
		case 1:
			w.locks = slices.Delete(w.locks, i, i+runSize)
		default:
			for j := range 2 * runSize {
				w.put(w.record(fmt.Sprintf("%s-%03d", name, j)))
			}
		}
		grown = w.snapshot(grown)
		now := group(grown)
		compareGroups(t, fmt.Sprint("turn ", turn), now, group(w.snapshot(nil)))
		known := map[*Group]bool{}
		for _, part := range *before.stretches.Load() {
			known[&part.groups[0]] = true
		}
		others := 0
		for _, part := range *now.stretches.Load() {
			if !known[&part.groups[0]] {
				others++
			}
		}
		if others == 0 || others > 3 {
			t.Errorf("turn %d: %d stretches were grouped anew", turn, others)
		}
		before = now
	}
}
