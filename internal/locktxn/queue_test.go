package locktxn_test

import (
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func attempt(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

func fieldsOf(uuid string) []metadata.Field {
	return []metadata.Field{{Name: lockrecord.FieldUUID, Value: uuid},
		{Name: lockrecord.FieldAutoUnlockAt, Value: soon}}
}

func (s store) enqueue(lock, uuid string, lease clientv3.LeaseID) locktxn.Txn {
	return locktxn.Enqueue(s.l, locktxn.PlainClaim(lock), uuid, fieldsOf(uuid), metadata.Ticket{UUID: uuid}, lease)
}

// queued enqueues an attempt and expects the answer that before is ahead of it.
func (s store) queued(lock, uuid, before string, lease clientv3.LeaseID) locktxn.Position {
	s.Helper()
	resp := s.commit(s.enqueue(lock, uuid, lease))
	revision, told := locktxn.JoinResult(resp)
	if resp.Succeeded || revision != resp.Header.Revision || told != before {
		s.Fatalf("in line: got the lock %v, ticket of revision %d behind %q, want %d behind %q", resp.Succeeded,
			revision, told, resp.Header.Revision, before)
	}
	return locktxn.Position{Lock: lock, UUID: uuid, Revision: revision}
}

func (s store) turn(p locktxn.Position, before string, lease clientv3.LeaseID) locktxn.Txn {
	return locktxn.AcquireInTurn(s.l, locktxn.PlainClaim(p.Lock), p, before, fieldsOf(p.UUID),
		metadata.Ticket{UUID: p.UUID}, lease)
}

func TestNoTurnBeforeTheTicketAhead(t *testing.T) {
	s := start(t)
	lease := s.lease()
	h := s.hold("a", mine)
	s.queued("a", attempt(1), "", lease)
	two := s.queued("a", attempt(2), attempt(1), lease)
	s.done("release", locktxn.Release(s.l, h))
	s.refused("a turn before the one before", s.turn(two, attempt(1), lease))
	s.commit(locktxn.Leave(s.l, "a", attempt(1)))
	s.done("a turn", s.turn(two, attempt(1), lease))
}

func TestResentEnqueue(t *testing.T) {
	s := start(t)
	lease := s.lease()
	h := s.hold("a", mine)
	place := s.queued("a", attempt(1), "", lease)
	behind := s.queued("a", attempt(2), attempt(1), lease)

	resp := s.refused("enqueue, sent again", s.enqueue("a", attempt(1), lease))
	if revision, before := locktxn.JoinResult(resp); revision != place.Revision || before != "" {
		t.Errorf("told of a ticket of revision %d behind %q, want %d and not to know", revision, before, place.Revision)
	}
	s.done("release", locktxn.Release(s.l, h))
	s.commit(locktxn.LeaveWithoutPut(s.l, "a", behind.UUID)) // takes the tail along
	s.refused("enqueue, sent again, of a lock that is free and has no tail", s.enqueue("a", attempt(1), lease))

	s.done("enqueue that takes a free lock", s.enqueue("b", attempt(3), lease))
	s.refused("the same, sent again", s.enqueue("b", attempt(3), lease))

	s.commit(locktxn.Cancel(s.l, locktxn.PlainClaim("b"), attempt(4), lease))
	resp = s.refused("enqueue after its cancel", s.enqueue("b", attempt(4), lease))
	if revision, _ := locktxn.JoinResult(resp); revision != 0 {
		t.Errorf("a cancelled attempt has a ticket of revision %d", revision)
	}
}

func TestTailIsRestored(t *testing.T) {
	s := start(t)
	lease, other := s.lease(), s.lease()
	s.hold("a", mine)
	s.queued("a", attempt(9), "", other)
	s.queued("a", attempt(2), attempt(9), lease)
	s.queued("a", attempt(5), attempt(2), lease)
	before := func(resp *clientv3.TxnResponse, op int, but string) locktxn.NewestTicket {
		return locktxn.NewestExcept(s.l, locktxn.Keys(resp, op).Kvs, but)
	}

	resp := s.done("leave as the tail", locktxn.Leave(s.l, "a", attempt(5), locktxn.ReadTail(s.l, "a").Then[0]))
	two := before(resp, 1, attempt(5))
	if len(s.keys(".queue/a/"+attempt(5))) != 1 || two.UUID != attempt(2) || two.Lease != lease {
		t.Errorf("the tail has left, or the one before it is %+v", two)
	}
	s.commit(locktxn.Leave(s.l, "a", attempt(2))) // in the middle
	s.refused("put the tail back to who left meanwhile", locktxn.LeaveAsTail(s.l, "a", attempt(5), two))
	resp = s.done("leave as the tail", locktxn.Leave(s.l, "a", attempt(5)))
	nine := before(resp, 0, attempt(5))
	s.done("put the tail back", locktxn.LeaveAsTail(s.l, "a", attempt(5), nine))
	s.refused("put it back again", locktxn.LeaveAsTail(s.l, "a", attempt(5), nine))
	kv := s.get(s.l.Tail("a")).Kvs[0]
	if string(kv.Value) != attempt(9) || kv.Lease != int64(other) {
		t.Errorf("the tail is %v", kv)
	}

	s.done("leave as the only one", locktxn.LeaveAsTail(s.l, "a", attempt(9), locktxn.NewestTicket{}))
	if left := s.keys(".queue/"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestTailWithoutAQueue(t *testing.T) {
	s := start(t)
	s.put(s.l.Tail("a"), mine)
	tail := locktxn.Keys(s.commit(locktxn.ReadQueueLength(s.l, "a")), 1).Kvs[0].ModRevision
	s.put(s.l.Tail("a"), other)
	past := func(tail int64) locktxn.Txn {
		return locktxn.AcquirePastTail(s.l, locktxn.PlainClaim("a"), mine, fieldsOf(mine), tail)
	}
	s.refused("acquire past another tail than was seen", past(tail))
	s.done("acquire past the tail", past(tail+1))
	if left := s.keys(".queue/"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestRemovalDeletesTheHoldersTicket(t *testing.T) {
	for name, remove := range map[string]func(protocol.Layout, *locktxn.Removal) locktxn.Txn{
		"auto-unlock": locktxn.AutoUnlock, "force-unlock": locktxn.ForceUnlock,
		"without records": locktxn.ForceUnlockUnrecorded,
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			s.hold("a", mine)
			s.put(s.l.Ticket("a", mine), `{"holding":true}`)
			s.put(s.l.Ticket("a", other), `{}`)
			s.put(s.l.Ticket("b", mine), `{}`)
			s.done(name, remove(s.l, s.removal(s.record("a"), "u1")))
			if left := s.keys(".queue/"); len(left) != 2 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func reader(number int) locktxn.Claim {
	return locktxn.Claim{Lock: "a", Record: metadata.ShareName("a", number), MultiHolder: true}
}

func TestShareByTheQueue(t *testing.T) {
	s := start(t)
	lease := s.lease()
	enqueue := func(c locktxn.Claim, uuid string) locktxn.Txn {
		return locktxn.Enqueue(s.l, c, uuid, fieldsOf(uuid), metadata.Ticket{UUID: uuid}, lease)
	}
	writer := locktxn.Claim{Lock: "a", Record: "a", MultiHolder: true, CountsShares: true}
	first := s.done("a free lock", enqueue(writer, attempt(1))).Header.Revision

	// Nobody queues: there may be room by another claim, so it does not join yet.
	if place, before := locktxn.JoinResult(s.refused("a share beside the writer",
		enqueue(reader(1), attempt(2)))); place != 0 || before != "" {
		t.Errorf("it joined at %d behind %q", place, before)
	}
	join := locktxn.Join(s.l, reader(1), attempt(2), metadata.Ticket{UUID: attempt(2)}, lease)
	r := s.done("join", join)
	place, before := locktxn.JoinResult(r)
	if place != r.Header.Revision || before != "" {
		t.Errorf("it joined at %d behind %q", place, before)
	}
	if again, _ := locktxn.JoinResult(s.done("the same join, sent again", join)); again != place {
		t.Errorf("sent again it joined at %d, want %d", again, place)
	}
	// Somebody queues: the next one joins at once, though nobody holds the lock.
	s.done("release", locktxn.Release(s.l, locktxn.Hold{Lock: "a", UUID: attempt(1), Token: first}))
	third, before := locktxn.JoinResult(s.commit(enqueue(reader(1), attempt(3))))
	if third == 0 || before != attempt(2) {
		t.Errorf("the next one joined at %d behind %q", third, before)
	}
}
