package mutex

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// kind is how a lock is shared with others. The zero kind is the plain lock, which is not shared. All kinds are claimed
// by the same code, [acquisition.try] and [acquisition.queueUp]: what differs is in this file.
type kind struct {
	name   string // a value of the record's attribute kind; empty for a plain lock
	limit  int    // of a semaphore
	weight int    // permits asked for; 0 is 1

	options []string // that chose it, to name those that contradict each other
}

// maxReaders is how many readers the length of a name leaves room for.
const maxReaders = 99_999

// MaxLimit is the greatest number of permits of a semaphore.
const MaxLimit = 1_000_000

func (k *kind) choose(name, option string) {
	k.name = name
	k.options = append(k.options, option)
}

// shared reports whether several can hold the lock.
func (k kind) shared() bool { return k.name != "" }

// complete fills in what the options left open, adds the attributes of the kind, and refuses contradictions.
func (k *kind) complete(attributes *map[string]any) error {
	switch {
	case !k.shared() && k.weight != 0:
		return errors.New("Weight is for a semaphore: add the option Semaphore")
	case !k.shared():
		return nil
	}
	for _, other := range k.options[1:] {
		if other != k.options[0] {
			return fmt.Errorf("the options %s and %s contradict each other: a hold is of one kind", k.options[0], other)
		}
	}
	about := map[string]any{metadata.AttributeKind: k.name}
	if k.name == metadata.KindSemaphore {
		k.weight = max(k.weight, 1)
		if k.weight > k.limit {
			return fmt.Errorf("Weight is %d: the semaphore has only %d permits", k.weight, k.limit)
		}
		about[metadata.AttributePermits], about[metadata.AttributeLimit] = k.weight, k.limit
	} else if k.weight != 0 {
		return errors.New("Weight is for a semaphore, not for a read-write lock")
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

// checkName refuses a name whose shares would have invalid names or names of another lock.
func (k kind) checkName(name string) error {
	if !k.shared() {
		return nil
	}
	if lock, number, ok := metadata.ParseShare(name); ok {
		return fmt.Errorf("the name looks like share %d of the lock %q: choose one that does not end in # and "+
			"a number", number, lock)
	}
	highest := maxReaders
	if k.name == metadata.KindSemaphore {
		highest = k.limit
	}
	if room := metadata.MaxNameBytes - len("#"+strconv.Itoa(highest)); len(name) > room {
		return fmt.Errorf("the lock name has %d bytes, at most %d leave room for the numbers of its shares",
			len(name), room)
	}
	return nil
}

// covers reports whether a hold of this kind permits all that one of kind wants does: a reader may not write, and two
// permits are not three.
func (k kind) covers(wants kind) bool {
	switch {
	case k.name == wants.name:
		return wants.weight <= k.weight
	case k.name == metadata.KindExclusive:
		return wants.shared()
	}
	return false
}

// claim returns a claim that only names the lock, to read its holders.
func (k kind) claim(lock string) locktxn.Claim {
	return locktxn.Claim{Lock: lock, Record: lock, MultiHolder: k.shared()}
}

// blockers returns the holders that would have to finish to make room for one more of this kind: all of them for a
// writer or a plain lock, the writer for a reader, and for permits the oldest holders that have enough of them.
func (k kind) blockers(lock string, of []metadata.FullRecord) (some []metadata.FullRecord) {
	missing := max(k.weight, 1) - k.limit
	for _, d := range of {
		missing += permits(&d, k.limit)
	}
	for _, d := range of {
		whole := d.Name == lock
		switch {
		case whole, k.name == metadata.KindExclusive, !k.shared():
			some = append(some, d)
		case k.name == metadata.KindSemaphore && missing > 0:
			some = append(some, d)
			missing -= permits(&d, k.limit)
		}
	}
	return some
}

// holders are the holders of a lock at one revision. Holds that ended since may have been removed; later ones are not
// included. The zero holders have no holder, as before the first read.
type holders struct {
	revision int64                       // 0 if the shares were not read
	writer   metadata.FullRecord         // its Token is 0 when there is none
	shares   map[int]metadata.FullRecord // by number; for a plain lock, without others that have such a name

	// Lock delays, after holds whose holders may still be working.
	delay  *metadata.LockDelay        // that of the lock; nil when there is none
	delays map[int]metadata.LockDelay // those of shares, by number
}

// readRecord decodes the record that operation op read.
func readRecord(of protocol.Layout, lock string, a etcdretry.Response, op int) metadata.FullRecord {
	return lockrecord.Decode(lock, locktxn.Fields(of, a.Keys(op)))
}

// readHolders returns the holders of a lock of this kind from the operations of an answer from op on. reads is their
// number: [locktxn.HolderReads], or without the shares one fewer.
func readHolders(of protocol.Layout, lock string, k kind, a etcdretry.Response, op, reads int) holders {
	h := holders{writer: readRecord(of, lock, a, op), delays: map[int]metadata.LockDelay{}}
	if reads == locktxn.HolderReads {
		h.revision = a.Header.Revision
		h.shares = readShares(of, lock, k, a.Keys(op+1).Kvs)
	}
	for _, kv := range a.Keys(op + reads - 1).Kvs {
		name := of.Parse(string(kv.Key)).Lock
		delay := protocol.DecodeDelay(name, locktxn.KV(kv))
		base, number, isShare := metadata.ParseShare(name)
		switch {
		case name == lock:
			h.delay = &delay
		case isShare && base == lock:
			h.delays[number] = delay
		}
	}
	return h
}

// readShares returns the shares of a lock, by number, from all of their keys in order. The other kinds need the numbers
// that plain locks with such names have, too.
func readShares(of protocol.Layout, lock string, k kind, kvs []*mvccpb.KeyValue) map[int]metadata.FullRecord {
	shares := map[int]metadata.FullRecord{}
	records := protocol.RecordAssembler{Each: func(name string, fields []metadata.Field, _ []string) {
		base, number, ok := metadata.ParseShare(name)
		d := lockrecord.Decode(name, fields)
		if ok && base == lock && d.Token != 0 && (k.shared() || d.QueueName() == lock) {
			shares[number] = d
		}
	}}
	for _, kv := range kvs {
		records.Add(of.Parse(string(kv.Key)), locktxn.KV(kv))
	}
	records.Flush()
	return shares
}

func (h *holders) hasDelays() bool { return h.delay != nil || len(h.delays) > 0 }

// lastDelay returns the delay that lasts longest, as far as is known; nil if there is none.
func (h *holders) lastDelay() *metadata.LockDelay {
	last := h.delay
	for _, number := range slices.Sorted(maps.Keys(h.delays)) {
		if d := h.delays[number]; last == nil || d.Until().After(last.Until()) {
			last = &d
		}
	}
	return last
}

// removeEnded removes the holder whose uuid key was deleted, or the delay that is over.
func (h *holders) removeEnded(of protocol.Layout, lock, key string) {
	k := of.Parse(key)
	base, number, isShare := metadata.ParseShare(k.Lock)
	isShare = isShare && base == lock
	isUUID := k.Kind == protocol.KindField && k.ID == lockrecord.FieldUUID
	switch isDelay := k.Kind == protocol.KindDelay; {
	case isDelay && k.Lock == lock:
		h.delay = nil
	case isDelay && isShare:
		delete(h.delays, number)
	case isUUID && k.Lock == lock:
		h.writer = metadata.FullRecord{}
	case isUUID && isShare:
		delete(h.shares, number)
	}
}

// all returns the holders, the oldest first.
func (h *holders) all() []metadata.FullRecord {
	all := slices.SortedFunc(maps.Values(h.shares),
		func(a, b metadata.FullRecord) int { return int(a.Token - b.Token) })
	if h.writer.Token != 0 {
		all = slices.Insert(all, 0, h.writer)
	}
	return all
}

// oldest returns the first of all holders; if there is none, what was read of the lock's own record.
func (h *holders) oldest() metadata.FullRecord {
	if all := h.all(); len(all) > 0 {
		return all[0]
	}
	return h.writer
}

// byUUID returns the holder with this uuid: the acquisition itself, if an earlier request was committed.
func (h *holders) byUUID(uuid string) (metadata.FullRecord, bool) {
	for _, d := range h.all() {
		if d.UUID == uuid {
			return d, true
		}
	}
	return metadata.FullRecord{}, false
}

// free returns how many of limit permits are left. Permits in a lock delay do not count as free.
func (h *holders) free(limit int) int {
	if h.writer.Token != 0 || h.delay != nil {
		return 0
	}
	free := limit
	for _, d := range h.shares {
		free -= permits(&d, limit)
	}
	for _, d := range h.delays {
		if d.Unreadable {
			return 0
		}
		free -= max(d.Permits, 1)
	}
	return max(free, 0)
}

// permits returns how many of limit permits a share has. A record that says nothing about permits has one; an
// unreadable number counts as all of them.
func permits(d *metadata.FullRecord, limit int) int {
	if n := d.Permits(); n != 0 {
		return n
	}
	return limit
}

// hasRoom reports whether there is room for one more of this kind.
func (h *holders) hasRoom(k kind) bool {
	switch {
	case h.writer.Token != 0, h.delay != nil:
		return false
	case k.name == metadata.KindSemaphore:
		return k.weight <= h.free(k.limit)
	case k.name == metadata.KindShared:
		return true
	}
	return len(h.shares)+len(h.delays) == 0
}

// vacantNumber returns the lowest number without a share or a delay, after skipping this many vacant ones.
func (h *holders) vacantNumber(skip int) int {
	for n := 1; ; n++ {
		_, taken := h.shares[n]
		if _, delayed := h.delays[n]; taken || delayed {
			continue
		}
		if skip == 0 {
			return n
		}
		skip--
	}
}

// claim returns what to claim when these are the holders.
func (h *holders) claim(lock string, k kind, skip int) locktxn.Claim {
	c := locktxn.Claim{Lock: lock, Record: lock, MultiHolder: k.shared(), CountsShares: true, CountedAt: h.revision}
	switch k.name {
	case metadata.KindShared:
		c.Record = metadata.ShareName(lock, h.vacantNumber(skip))
		c.CountsShares = false
	case metadata.KindSemaphore:
		c.Record = metadata.ShareName(lock, h.vacantNumber(0))
	}
	return c
}

// knownHolders returns what a waiter keeps of the holders, to check later whether they are still the same.
func (k kind) knownHolders(lock string, h holders) locktxn.KnownHolders {
	return locktxn.KnownHolders{Lock: lock, Token: h.writer.Token, Delay: delayRevision(h.delay),
		MultiHolder: k.shared(), Revision: h.revision}
}
