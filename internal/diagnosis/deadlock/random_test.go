package deadlock_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// TestCyclesMatchTheDefinition compares Find with the definition itself, tried out on all sets of processes: a set
// is stuck when each of it waits for a lock that those outside of it, who all get on, cannot make free.
func TestCyclesMatchTheDefinition(t *testing.T) {
	owners := []string{"a", "b", "c", "d", "e"}
	none := 0
	some := 0
	for seed := range uint64(3_000) {
		w := anyWorld(rand.New(rand.NewPCG(seed, 1)), owners)
		all := stuckSets(w, owners)
		found := w.find()
		var sets []int
		for _, c := range found {
			set := 0
			for _, p := range c.Processes() {
				set |= 1 << slices.Index(owners, p.Owner)
			}
			if sets = append(sets, set); !slices.Contains(all, set) {
				t.Fatalf("seed %d: %s is reported although it can proceed", seed, told(c))
			}
		}
		if problem := missing(all, sets); problem != "" {
			t.Fatalf("seed %d: %s: %v", seed, problem, found)
		}
		if len(found) == 0 {
			none++
		} else {
			some++
		}
	}
	if none < 200 || some < 200 {
		t.Errorf("%d worlds with cycles and %d without prove little", some, none)
	}
}

// missing reports minimal stuck sets that no cycle covers, and cycles that overlap.
func missing(all, found []int) string {
	for _, set := range all {
		smallest := !slices.ContainsFunc(all, func(other int) bool { return other != set && other&set == other })
		if smallest && !slices.ContainsFunc(found, func(cycle int) bool { return set&cycle == set }) {
			return fmt.Sprintf("%05b is stuck and not told", set)
		}
	}
	for i, one := range found {
		for _, other := range found[:i] {
			if one&other != 0 {
				return fmt.Sprintf("%05b and %05b overlap", one, other)
			}
		}
	}
	return ""
}

func anyWorld(r *rand.Rand, owners []string) *world {
	w := newWorld()
	locks := []string{"pool", "book", "u", "v", "w", "x"}
	for _, lock := range locks {
		switch n := 1 + r.IntN(3); lock {
		case "pool", "book":
			kind := map[string]string{"pool": metadata.KindSemaphore, "book": metadata.KindShared}[lock]
			for range n {
				w.share(lock, owners[r.IntN(len(owners))], kind, 1)
			}
		default:
			w.holds(lock, owners[r.IntN(len(owners))], 1)
		}
	}
	for range 2 + r.IntN(6) {
		w.waits(owners[r.IntN(len(owners))], locks[r.IntN(len(locks))], 2)
	}
	for range r.IntN(3) {
		hold := w.locks[r.IntN(len(w.locks))]
		if len(w.queues[hold.QueueName()]) > 0 {
			w.waits("command", locks[r.IntN(len(locks))]+"<"+hold.Name, 2)
		}
	}
	return w
}

// stuckSets are all sets of processes that are stuck, as bits.
func stuckSets(w *world, owners []string) (all []int) {
	for set := 1; set < 1<<len(owners); set++ {
		in := func(owner string) bool { return set&(1<<slices.Index(owners, owner)) != 0 }
		stuck := true
		for i, owner := range owners {
			if set&(1<<i) != 0 && !stuckWith(w, owner, in) {
				stuck = false
			}
		}
		if stuck {
			all = append(all, set)
		}
	}
	return all
}

// stuckWith reports whether the process waits for a lock that those keep.
func stuckWith(w *world, owner string, those func(owner string) bool) bool {
	for lock, queue := range w.queues {
		itself := func(t metadata.Waiter) bool { return t.Owner == owner }
		command := func(t metadata.Waiter) bool { return w.holder(t.Under) == owner }
		if slices.ContainsFunc(queue, itself) && keptBy(w, lock, owner, those) ||
			slices.ContainsFunc(queue, command) && keptBy(w, lock, "", those) {
			return true
		}
	}
	return false
}

// holder is the owner of the hold with the uuid.
func (w *world) holder(uuid string) string {
	for _, r := range w.locks {
		if r.UUID == uuid {
			return r.Owner
		}
	}
	return ""
}

func keptBy(w *world, lock, from string, those func(owner string) bool) bool {
	permits := false
	free := false
	kept := false
	for _, r := range w.locks {
		of, _, share := metadata.ParseShare(r.Name)
		switch {
		case r.Name != lock && (!share || of != lock):
		case r.Owner == from:
			return false
		case share && r.Attributes[metadata.AttributeKind] == metadata.KindSemaphore:
			permits = true
			free = free || !those(r.Owner)
		default:
			kept = kept || those(r.Owner)
		}
	}
	return kept || permits && !free
}

func TestCyclesAreDeterministic(t *testing.T) {
	for seed := range uint64(200) {
		w := anyWorld(rand.New(rand.NewPCG(seed, 2)), []string{"a", "b", "c", "d", "e"})
		want := fmt.Sprint(w.find())
		for range 5 {
			if got := fmt.Sprint(deadlock.Find(w.locks, w.queues)); got != want {
				t.Fatalf("seed %d: %s, then %s", seed, want, got)
			}
		}
	}
}
