package mutex

import (
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// maxReaders is how many readers a read-write lock must have names for.
const maxReaders = 99_999

// kind is how a lock is shared with others. The zero kind is the plain lock, which is not.
type kind struct {
	name   string // a value of the record's attribute kind; empty for a plain lock
	limit  int    // of a semaphore
	weight int    // permits asked for; 0 is 1

	options []string // that chose it, to say which of them contradict each other
}

// MaxLimit is the greatest number of permits of a semaphore.
const MaxLimit = 1_000_000

// shared reports whether several can hold the lock.
func (k kind) shared() bool { return k.name != "" }

// settle fills in what the options left open, adds the attributes of the kind, and refuses contradictions.
func (k *kind) settle(attributes *map[string]any) error {
	switch {
	case !k.shared() && k.weight != 0:
		return errors.New("a weight is for a semaphore: add the option Semaphore")
	case !k.shared():
		return nil
	}
	for _, other := range k.options[1:] {
		if other != k.options[0] {
			return fmt.Errorf("the options %s and %s contradict each other: a hold is of one kind", k.options[0], other)
		}
	}
	about := map[string]any{metadata.AttributeKind: k.name}
	if k.name == metadata.HoldsPermits {
		k.weight = max(k.weight, 1)
		if k.weight > k.limit {
			return fmt.Errorf("the weight is %d permits, the semaphore has only %d", k.weight, k.limit)
		}
		about[metadata.AttributePermits], about[metadata.AttributeLimit] = k.weight, k.limit
	} else if k.weight != 0 {
		return errors.New("a weight is for a semaphore, not for a read-write lock")
	}
	for name := range *attributes {
		if name == metadata.AttributeKind || name == metadata.AttributePermits || name == metadata.AttributeLimit {
			return fmt.Errorf("attribute %q: with the option %s the name belongs to the protocol", name, k.options[0])
		}
	}
	maps.Copy(about, *attributes)
	*attributes = about
	return nil
}

// checkName wants a name whose shares have valid names, too, and are nobody else's.
func (k kind) checkName(name string) error {
	if !k.shared() {
		return nil
	}
	if lock, number, ok := metadata.ParseShare(name); ok {
		return fmt.Errorf("the name ends like that of share %d of the lock %q: choose one that does not end in # and "+
			"a number", number, lock)
	}
	most := maxReaders
	if k.name == metadata.HoldsPermits {
		most = k.limit
	}
	if room := metadata.MaxNameBytes - len("#"+strconv.Itoa(most)); len(name) > room {
		return fmt.Errorf("the lock name has %d bytes, at most %d leave room for the numbers of its shares",
			len(name), room)
	}
	return nil
}

// covers reports whether a hold of this kind allows all that one of the other is for: a reader may not write, and two
// permits are not three.
func (k kind) covers(wants kind) bool {
	switch {
	case k.name == wants.name:
		return wants.weight <= k.weight
	case k.name == metadata.HoldsExclusive:
		return wants.shared()
	}
	return false
}
