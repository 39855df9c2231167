package locktxn_test

import (
	"testing"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// permit claims a share of lock a by what was counted at a revision.
func (s store) permit(number int, uuid string, counted int64) locktxn.Txn {
	return locktxn.Acquire(s.l, share(number, counted), uuid, fieldsOf(uuid), false)
}

func share(number int, counted int64) locktxn.Claim {
	c := reader(number)
	c.Counts = true
	c.Counted = counted
	return c
}

func reader(number int) locktxn.Claim {
	return locktxn.Claim{Lock: "a", Record: metadata.ShareName("a", number), Shares: true}
}

func writer(counted int64) locktxn.Claim {
	return locktxn.Claim{Lock: "a", Record: "a", Shares: true, Counts: true, Counted: counted}
}

func (s store) claim(c locktxn.Claim, uuid string) locktxn.Txn {
	return locktxn.Acquire(s.l, c, uuid, fieldsOf(uuid), false)
}

func TestClaimOfWhatWasCounted(t *testing.T) {
	s := start(t)
	one := s.done("a permit when there is none", s.permit(1, attempt(1), 0)).Header.Revision
	s.refused("a permit by a count from before", s.permit(2, attempt(2), one-1))
	two := s.done("a permit by a count of now", s.permit(2, attempt(2), one)).Header.Revision
	s.refused("the writer beside permits that it did not count", s.claim(writer(one), attempt(3)))
	s.refused("a reader in the place of a permit", s.claim(reader(1), attempt(3)))
	s.done("a reader beside permits", s.claim(reader(3), attempt(3)))
	s.done("release", locktxn.Release(s.l, locktxn.Hold{Lock: "a#3", UUID: attempt(3), Token: two + 1}))
	s.done("a permit by a count from before the reader, which is gone", s.permit(3, attempt(4), two))
	s.done("alive", locktxn.Alive(s.l, locktxn.Hold{Lock: "a#1", UUID: attempt(1), Token: one}, later, later, later))
	s.refused("a permit by a count from before the first alive call", s.permit(4, attempt(5), two+3))

	resp := s.refused("another lock", s.permit(4, attempt(5), 0))
	if n := len(locktxn.Keys(resp, 1).Kvs); n != 8 {
		t.Errorf("the else branch reads %d keys of shares, want 8", n)
	}
}

func TestSharesAndTheWriterKeepOut(t *testing.T) {
	s := start(t)
	s.done("the writer of a free lock", s.claim(writer(0), attempt(1)))
	s.refused("a reader beside the writer", s.claim(reader(1), attempt(2)))
	s.refused("a permit beside the writer", s.permit(1, attempt(2), 1<<40))
	s.refused("another writer", s.claim(writer(1<<40), attempt(2)))
}

func TestShareByTheQueue(t *testing.T) {
	s := start(t)
	lease := s.lease()
	enqueue := func(c locktxn.Claim, uuid string) locktxn.Txn {
		return locktxn.Enqueue(s.l, c, uuid, fieldsOf(uuid), metadata.Ticket{UUID: uuid}, lease)
	}
	first := s.done("a free lock", enqueue(writer(0), attempt(1))).Header.Revision

	// Nobody queues: there may be room by another claim, so it does not join yet.
	if place, before := locktxn.Joined(s.refused("a share beside the writer",
		enqueue(reader(1), attempt(2)))); place != 0 || before != "" {
		t.Errorf("it joined at %d behind %q", place, before)
	}
	join := locktxn.Join(s.l, reader(1), attempt(2), metadata.Ticket{UUID: attempt(2)}, lease)
	r := s.done("join", join)
	place, before := locktxn.Joined(r)
	if place != r.Header.Revision || before != "" {
		t.Errorf("it joined at %d behind %q", place, before)
	}
	if again, _ := locktxn.Joined(s.done("the same join, sent again", join)); again != place {
		t.Errorf("sent again it joined at %d, want %d", again, place)
	}
	// Somebody queues: the next one joins at once.
	third, before := locktxn.Joined(s.commit(enqueue(reader(1), attempt(3))))
	if third == 0 || before != attempt(2) {
		t.Errorf("the next one joined at %d behind %q", third, before)
	}

	turn := func(n int, at int64, c locktxn.Claim) locktxn.Txn {
		return locktxn.Turn(s.l, c, locktxn.Position{Lock: "a", UUID: attempt(n), Revision: at}, "",
			fieldsOf(attempt(n)), metadata.Ticket{}, lease)
	}
	s.refused("a turn while the writer holds", turn(2, place, reader(1)))
	s.done("release", locktxn.Release(s.l, locktxn.Hold{Lock: "a", UUID: attempt(1), Token: first}))
	s.refused("a newcomer past the queue", s.claim(reader(1), attempt(4)))
	s.refused("a turn with the ticket of another", turn(2, third, reader(1)))
	s.done("the first one's turn", turn(2, place, reader(1)))
	s.refused("the same turn, sent again", turn(2, place, reader(1)))
	s.refused("a late turn with another share", turn(2, place, reader(2)))
	s.done("the next one's turn, at once", turn(3, third, reader(2)))
	if left := s.keys(".queue/"); len(left) > 0 {
		t.Errorf("the queue has %v", left)
	}
}

func TestCancelOfAShareReadsWhatIsToBeTakenBack(t *testing.T) {
	s := start(t)
	lease := s.lease()
	s.done("a permit", s.permit(3, attempt(1), 0))
	r := s.done("cancel", locktxn.Cancel(s.l, reader(3), attempt(1), lease))
	if kvs := locktxn.Keys(r, 1).Kvs; len(kvs) == 0 || string(kvs[len(kvs)-1].Value) != attempt(1) {
		t.Errorf("it does not read the record: %v", kvs)
	}
	s.done("take back", locktxn.Withdraw(s.l, locktxn.Sole("a#3"), attempt(1)))
	s.refused("a late claim", s.permit(3, attempt(1), 1<<40))
	s.refused("a late claim of another share", s.claim(reader(1), attempt(1)))
	tail := s.put(s.l.Tail("a"), "x")
	s.done("a claim past a dead tail", locktxn.AcquirePast(s.l, reader(1), attempt(2), fieldsOf(attempt(2)), tail))
	if left := s.keys(".queue/"); len(left) > 0 {
		t.Errorf("the queue has %v", left)
	}
}
