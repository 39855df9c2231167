//go:build conformance

package conformance

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

var queueChecks = []check{
	{name: "order in a mixed queue", rule: "protocol/queue.md#the-queue", needs: "queue", short: true,
		wants: "waiters get the lock in the order in which they came", pair: mixedOrder},
	{name: "a newcomer stays behind", rule: "protocol.md#transactions", needs: "queue", short: true,
		wants: "a newcomer does not take a free lock ahead of the waiters", alone: newcomerStaysBehind},
	{name: "giving up", rule: "protocol/queue.md#the-queue", needs: "queue", short: true,
		wants: "a waiter that gives up leaves the queue, and those behind it keep their places", alone: givingUp},
	{name: "the tail is put back", rule: "protocol/queue.md#the-queue", needs: "queue", short: true,
		wants: "a waiter that leaves as the tail sets it to the ticket before its own", alone: tailIsPutBack},
	{name: "behind a hundred", rule: "protocol/queue.md#the-queue", needs: "queue", short: true,
		wants: "a waiter whose turn comes in order sends a handful of requests, and never reads the queue",
		alone: behindHundred},
	{name: "a waiter killed", rule: "protocol/queue.md#the-queue", needs: "queue", orders: true,
		wants: "the place of a dead waiter goes with its lease, and the others keep theirs", pair: waiterKilled},
	{name: "the last waiter killed", rule: "protocol/queue.md#the-queue", needs: "queue", orders: true,
		wants: "a waiter restores the tail that died with its owner", pair: lastWaiterKilled},
	{name: "a ticket gone", rule: "protocol/queue.md#ticket", needs: "queue", short: true,
		wants: "a waiter whose ticket is gone joins again, and says since when the call waits, and under which holds",
		alone: ticketGone},
	{name: "silent watch of a waiter", rule: "protocol/queue.md#waiting", needs: "queue",
		wants: "a waiter whose watch is silent reads again by itself", alone: silentWatch},
}

// mixedOrder queues two of each client behind a holder.
func mixedOrder(t *testing.T, s *scene, a, b *client) {
	holder := s.open(a).acquire("queue/mixed", want{try: true})
	var waits []*call
	for i, c := range []*client{b, a, a, b} {
		waits = append(waits, s.open(c).begin(holder.name, want{}))
		s.queued(holder.name, i+1)
	}
	current := holder
	for i, wait := range waits {
		freed := time.Now()
		current.mustRelease()
		last := current
		current = wait.granted()
		// Its writer may round down to milliseconds.
		if r := s.record(holder.name); r.LockedAt.Before(freed.Truncate(time.Millisecond)) {
			t.Errorf("locked_at of waiter %d is %v before the lock was free: it counts from the turn", i,
				freed.Sub(r.LockedAt))
		}
		current.comesAfter(last)
		for j, later := range waits[i+1:] {
			later.unanswered(fmt.Sprintf("waiter %d got the lock before waiter %d", i+1+j, i))
		}
	}
	s.ends(current)
}

// stranger is a waiter in the queue that never takes its turn.
type stranger struct {
	s     *scene
	name  string
	uuid  string
	lease clientv3.LeaseID
}

func (s *scene) stranger(name string) *stranger {
	x := &stranger{s: s, name: name, uuid: uuid.NewString(), lease: s.lease()}
	ticket := fmt.Sprintf(`{"uuid":%q,"owner":"stranger","hostname":"elsewhere","pid":1,"since":"1553682600"}`, x.uuid)
	s.txn(clientv3.OpPut(s.layout.Ticket(name, x.uuid), ticket, clientv3.WithLease(x.lease)),
		clientv3.OpPut(s.layout.Tail(name), x.uuid, clientv3.WithLease(x.lease)))
	return x
}

func (x *stranger) dies() {
	ctx, cancel := x.s.context()
	defer cancel()
	_, err := x.s.etcd.Revoke(ctx, x.lease)
	proctest.Must(x.s.t, err)
}

func newcomerStaysBehind(t *testing.T, s *scene, c *client) {
	d := s.open(c)
	x := s.stranger("queue/behind")
	a := d.try(x.name)
	if a.Error == "" {
		t.Fatalf("it got a lock that one waits for, want held, no holder, waiting 1: %s", a.line)
	} else if a.Error != "held" || a.Holder != nil || a.Waiting == nil || *a.Waiting != 1 {
		t.Errorf("of a lock that is free and that one waits for it says %s, want held, no holder, waiting 1", a.line)
	}
	wait := s.queues(d, x.name, want{}, 2)
	wait.unanswered("it got the lock past the one ahead")
	x.dies()
	s.ends(wait.granted())
}

func givingUp(t *testing.T, s *scene, c *client) {
	d := s.open(c)
	l := d.acquire("queue/given-up", want{try: true, purpose: "held on"})
	l.keepsOut(d.do(want{wait: 2}.request(l.name)))
	s.queued(l.name, 0)
	s.loses(l, c, d, (*call).cancel)
}

// loses has three wait for the lock, of whom the second goes.
func (s *scene) loses(l *lock, c *client, second *driver, goes func(*call)) {
	first := s.queues(s.open(c), l.name, want{}, 1)
	gone := s.queues(second, l.name, want{}, 2)
	last := s.queues(s.open(c), l.name, want{}, 3)
	goes(gone)
	l.mustRelease()
	next := first.granted()
	s.queued(l.name, 1)
	last.unanswered("the last got the lock beside the first")
	next.mustRelease()
	s.ends(last.granted())
}

func (s *scene) tailIs(name, uuid string) {
	s.t.Helper()
	eventually(s.t, "the tail", func() error {
		if got := s.value(s.layout.Tail(name)); got != uuid {
			return fmt.Errorf("it names %q, want %q", got, uuid)
		}
		return nil
	})
}

func tailIsPutBack(t *testing.T, s *scene, c *client) {
	l := s.open(c).acquire("queue/tail", want{try: true})
	x := s.stranger(l.name)
	d := s.open(c)
	wait := s.queues(d, l.name, want{}, 2)
	own := s.tickets(l.name)[1]
	s.tailIs(l.name, own)
	if ticket := s.value(s.layout.Ticket(l.name, own)); !strings.Contains(ticket, own) {
		t.Errorf("the ticket %s does not say whose it is: %s", own, ticket)
	}
	wait.cancel()
	s.tailIs(l.name, x.uuid)
	x.dies()
	s.ends(l)
}

// waiterKilled kills a waiter of b between two of a.
func waiterKilled(t *testing.T, s *scene, a, b *client) {
	l := s.open(a).acquire("queue/killed", want{try: true})
	s.loses(l, a, s.open(b), func(c *call) { c.d.kill() }) // its place goes with its lease
}

// lastWaiterKilled kills a waiter of b behind one of a.
func lastWaiterKilled(t *testing.T, s *scene, a, b *client) {
	l := s.open(a).acquire("queue/last", want{try: true})
	wait := s.queues(s.open(a), l.name, want{}, 1)
	own := s.tickets(l.name)[0]
	dead := s.open(b)
	s.queues(dead, l.name, want{}, 2)
	dead.kill()
	s.queued(l.name, 1)
	s.tailIs(l.name, own)
	l.mustRelease()
	s.ends(wait.granted())
}

func (s *scene) ticket(name, id string) metadata.Ticket {
	s.t.Helper()
	ticket, err := protocol.Unmarshal[metadata.Ticket]([]byte(s.value(s.layout.Ticket(name, id))))
	proctest.Must(s.t, err)
	return ticket
}

func ticketGone(t *testing.T, s *scene, c *client) {
	l := s.open(c).acquire("queue/gone", want{try: true})
	outer, inner := uuid.NewString(), uuid.NewString()
	d := c.start(t, "MUTEX_UNDER=nothing "+outer, "MUTEX_UUID="+inner)
	d.must(s.opening())
	wait := s.queues(d, l.name, want{}, 1)
	own := s.tickets(l.name)[0]
	first := s.ticket(l.name, own)
	s.txn(clientv3.OpDelete(s.layout.Ticket(l.name, own)))
	etcdtest.Eventually(t, "another ticket", func() bool {
		now := s.tickets(l.name)
		return len(now) == 1 && now[0] != own
	})
	again := s.ticket(l.name, s.tickets(l.name)[0])
	if again.Since.IsZero() || !again.Since.Equal(first.Since.Time) {
		t.Errorf("the first ticket said that it waits since %v, the second %v", first.Since, again.Since)
	}
	if want := outer + " " + inner; first.Under != want || again.Under != want {
		t.Errorf("it waits under %q, then %q, want %q", first.Under, again.Under, want)
	}
	l.mustRelease()
	s.ends(wait.granted())
}

func silentWatch(t *testing.T, s *scene, c *client) {
	line := newWire(t, s.target[0])
	l := s.open(c).acquire("queue/silent", want{try: true})
	d := s.open(c, line.Addr)
	line.judgeBy(func(r sent) fate { return fate{loseAnswer: r.watches()} })
	wait := s.queues(d, l.name, want{}, 1)
	l.mustRelease()
	s.ends(wait.granted())
}

// manyRequests is more than a waiter needs to join, to learn that the one ahead went, and to take and release the lock.
const manyRequests = 20

// behindHundred has two waiters behind 99 strangers, who give up one after the other. The last waits through a wire.
func behindHundred(t *testing.T, s *scene, c *client) {
	line := newWire(t, s.target[0])
	d := s.open(c)
	l := d.acquire("queue/hundred", want{try: true})
	strangers := make([]*stranger, 99)
	for i := range strangers {
		strangers[i] = s.stranger(l.name)
	}
	next := s.queues(d, l.name, want{}, 100)
	behind := s.open(c, line.Addr)
	var mu sync.Mutex
	requests := 0
	holders := map[string]bool{} // that it has read
	line.hearBy(func(r sent, answer *pb.TxnResponse) {
		mu.Lock()
		defer mu.Unlock()
		requests++
		holders[holderIn(answer)] = true
		if key := s.scans(l.name, r, answer.Succeeded); key != "" {
			t.Errorf("it read the queue from %q on, and with it all tickets that there were: %v", key, r.body)
		}
	})
	last := s.queues(behind, l.name, want{}, 101)
	for _, x := range strangers {
		x.dies()
	}
	l.mustRelease()
	taken := next.granted()
	if len(s.get(s.layout.Ticket(l.name, taken.uuid))) == 0 { // otherwise the end of the ticket is that of the hold
		etcdtest.Eventually(t, "a look while the one ahead holds the lock", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return holders[taken.uuid]
		})
	}
	taken.mustRelease()
	s.ends(last.granted())
	mu.Lock()
	defer mu.Unlock()
	if requests > manyRequests {
		t.Errorf("it sent %d transactions for one hold", requests)
	}
}

// holderIn is the uuid of the holder that an answer shows.
func holderIn(answer *pb.TxnResponse) string {
	for _, one := range answer.Responses {
		for _, kv := range one.GetResponseRange().GetKvs() {
			if strings.HasSuffix(string(kv.Key), "/uuid") {
				return string(kv.Value)
			}
		}
	}
	return ""
}

// scans is where the transaction began to read a range of the queue, in the branch that was taken; empty if it did not.
func (s *scene) scans(name string, r sent, succeeded bool) string {
	branch := r.body.Failure
	if succeeded {
		branch = r.body.Success
	}
	for _, op := range branch {
		read := op.GetRequestRange()
		if len(read.GetRangeEnd()) > 0 && strings.HasPrefix(string(read.Key), s.layout.Queue(name)) {
			return string(read.Key)
		}
	}
	return ""
}
