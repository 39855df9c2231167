//go:build conformance

package conformance

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// queueChecks are about waiting, in order of arrival.
func queueChecks() []check {
	queue := []string{"queue"}
	return []check{
		{name: "order in a mixed queue", rule: "protocol/queue.md#the-queue", needs: queue, short: true,
			wants: "waiters get the lock in the order in which they came", pair: mixedOrder},
		{name: "a newcomer stays behind", rule: "protocol.md#transactions", needs: queue, short: true,
			wants: "a newcomer does not take a free lock ahead of the waiters", alone: newcomerStaysBehind},
		{name: "giving up", rule: "protocol/queue.md#the-queue", needs: queue, short: true,
			wants: "a waiter that gives up leaves the queue, and those behind it keep their places", alone: givingUp},
		{name: "the tail is put back", rule: "protocol/queue.md#the-queue", needs: queue, short: true,
			wants: "a waiter that leaves as the tail sets it to the ticket before its own", alone: tailIsPutBack},
		{name: "behind a hundred", rule: "protocol/queue.md#the-queue", needs: queue, short: true,
			wants: "a waiter whose turn comes in order sends a handful of requests, and never reads the queue",
			alone: behindHundred},
		{name: "a waiter killed", rule: "protocol/queue.md#the-queue", needs: queue, orders: true,
			wants: "the place of a dead waiter goes with its lease, and the others keep theirs", pair: waiterKilled},
		{name: "the last waiter killed", rule: "protocol/queue.md#the-queue", needs: queue, orders: true,
			wants: "a waiter restores the tail that died with its owner", pair: lastWaiterKilled},
		{name: "a ticket gone", rule: "protocol/queue.md#the-queue", needs: queue,
			wants: "a waiter whose ticket is gone joins again", alone: ticketGone},
		{name: "silent watch of a waiter", rule: "protocol/queue.md#waiting", needs: queue,
			wants: "a waiter whose watch is silent reads again by itself", alone: silentWatch},
	}
}

// mixedOrder queues two of each client behind a holder.
func mixedOrder(t *testing.T, w *world, a, b *client) {
	s := w.scene(t)
	holder := s.open(a).acquire("queue/mixed", want{try: true})
	last := holder.token
	var waits []*call
	for i, c := range []*client{b, a, a, b} {
		waits = append(waits, s.open(c).begin(holder.name, want{}))
		s.queued(holder.name, i+1)
	}
	current := holder
	for i, wait := range waits {
		freed := time.Now()
		current.mustRelease()
		current = wait.granted()
		// Its writer may round down to milliseconds.
		if r := s.record(holder.name); r.LockedAt.Before(freed.Truncate(time.Millisecond)) {
			t.Errorf("locked_at of waiter %d is %v before the lock was free: it counts from the turn", i,
				freed.Sub(r.LockedAt))
		}
		if current.token <= last {
			t.Errorf("token %d came after %d", current.token, last)
		}
		last = current.token
		for j, later := range waits[i+1:] {
			if later.answered() {
				t.Fatalf("waiter %d got the lock before waiter %d: %s", i+1+j, i, later.wait().line)
			}
		}
	}
	current.mustRelease()
	s.free(holder.name)
}

// stranger is a waiter in the queue that never takes its turn.
type stranger struct {
	s     *scene
	name  string
	uuid  string
	lease clientv3.LeaseID
}

func (s *scene) stranger(name string) *stranger {
	s.t.Helper()
	ctx, cancel := s.context()
	defer cancel()
	x := &stranger{s: s, name: name, uuid: newUUID()}
	lease, err := s.etcd.Grant(ctx, 600)
	if err != nil {
		s.t.Fatal(err)
	}
	x.lease = lease.ID
	ticket := fmt.Sprintf(`{"uuid":%q,"owner":"stranger","hostname":"elsewhere","pid":1,"since":"1553682600"}`, x.uuid)
	_, err = s.etcd.Txn(ctx).Then(
		clientv3.OpPut(s.layout.Ticket(name, x.uuid), ticket, clientv3.WithLease(x.lease)),
		clientv3.OpPut(s.layout.Tail(name), x.uuid, clientv3.WithLease(x.lease))).Commit()
	if err != nil {
		s.t.Fatal(err)
	}
	return x
}

// dies ends the stranger's lease.
func (x *stranger) dies() {
	x.s.t.Helper()
	ctx, cancel := x.s.context()
	defer cancel()
	if _, err := x.s.etcd.Revoke(ctx, x.lease); err != nil {
		x.s.t.Fatal(err)
	}
}

func newcomerStaysBehind(t *testing.T, w *world, c *client) {
	s := w.scene(t)
	d := s.open(c)
	x := s.stranger("queue/behind")
	a := d.try(x.name)
	if a.Error == "" {
		t.Fatalf("it got a lock that one waits for, want held, no holder, waiting 1: %s", a.line)
	} else if a.Error != "held" || a.Holder != nil || a.Waiting == nil || *a.Waiting != 1 {
		t.Errorf("of a lock that is free and that one waits for it says %s, want held, no holder, waiting 1", a.line)
	}
	wait := d.begin(x.name, want{})
	s.queued(x.name, 2)
	if wait.answered() {
		t.Fatalf("it got the lock past the one ahead: %s", wait.wait().line)
	}
	x.dies()
	wait.granted().mustRelease()
	s.free(x.name)
}

func givingUp(t *testing.T, w *world, c *client) {
	s := w.scene(t)
	d := s.open(c)
	l := d.acquire("queue/given-up", want{try: true, purpose: "held on"})
	timeout := d.do(want{wait: 0.5}.request(l.name))
	if timeout.Error != "timeout" || timeout.Holder == nil || timeout.Holder.UUID != l.uuid {
		t.Errorf("a wait that is over says %s, want timeout and the holder %s", timeout.line, l.uuid)
	}
	s.queued(l.name, 0)
	first := s.open(c).begin(l.name, want{})
	s.queued(l.name, 1)
	middle := d.begin(l.name, want{})
	s.queued(l.name, 2)
	last := s.open(c).begin(l.name, want{})
	s.queued(l.name, 3)
	d.must(request{"do": "cancel", "request": middle.id})
	if a := middle.wait(); a.Error != "cancelled" {
		t.Errorf("a wait that was cancelled says %s", a.line)
	}
	s.queued(l.name, 2)
	l.mustRelease()
	next := first.granted()
	if last.answered() {
		t.Errorf("the last got the lock beside the first: %s", last.wait().line)
	}
	next.mustRelease()
	last.granted().mustRelease()
	s.free(l.name)
}

// tail is whom the tail of the queue names, empty without one.
func (s *scene) tail(name string) string {
	s.t.Helper()
	kvs := s.get(s.layout.Tail(name))
	if len(kvs) == 0 {
		return ""
	}
	return string(kvs[0].Value)
}

func (s *scene) tailIs(name, uuid string) {
	s.t.Helper()
	eventually(s.t, "the tail", func() error {
		if got := s.tail(name); got != uuid {
			return fmt.Errorf("it names %q, want %q", got, uuid)
		}
		return nil
	})
}

func tailIsPutBack(t *testing.T, w *world, c *client) {
	s := w.scene(t)
	l := s.open(c).acquire("queue/tail", want{try: true})
	x := s.stranger(l.name)
	d := s.open(c)
	wait := d.begin(l.name, want{})
	s.queued(l.name, 2)
	own := s.tickets(l.name)[1]
	s.tailIs(l.name, own)
	if !strings.Contains(s.ticket(l.name, own), own) {
		t.Errorf("the ticket %s does not say whose it is: %s", own, s.ticket(l.name, own))
	}
	d.must(request{"do": "cancel", "request": wait.id})
	if a := wait.wait(); a.Error != "cancelled" {
		t.Errorf("a wait that was cancelled says %s", a.line)
	}
	s.tailIs(l.name, x.uuid)
	x.dies()
	l.mustRelease()
	s.free(l.name)
}

// ticket is the value of a ticket.
func (s *scene) ticket(name, uuid string) string {
	s.t.Helper()
	kvs := s.get(s.layout.Ticket(name, uuid))
	if len(kvs) == 0 {
		s.t.Fatalf("there is no ticket %s", uuid)
	}
	return string(kvs[0].Value)
}

// waiterKilled kills a waiter of b between two of a.
func waiterKilled(t *testing.T, w *world, a, b *client) {
	s := w.scene(t)
	l := s.open(a).acquire("queue/killed", want{try: true})
	first := s.open(a).begin(l.name, want{})
	s.queued(l.name, 1)
	dead := s.open(b)
	dead.begin(l.name, want{})
	s.queued(l.name, 2)
	last := s.open(a).begin(l.name, want{})
	s.queued(l.name, 3)
	dead.kill()
	l.mustRelease()
	next := first.granted()
	s.queued(l.name, 1) // its lease is over
	if last.answered() {
		t.Fatalf("the last got the lock beside the first: %s", last.wait().line)
	}
	next.mustRelease()
	last.granted().mustRelease()
	s.free(l.name)
}

// lastWaiterKilled kills a waiter of b behind one of a.
func lastWaiterKilled(t *testing.T, w *world, a, b *client) {
	s := w.scene(t)
	l := s.open(a).acquire("queue/last", want{try: true})
	wait := s.open(a).begin(l.name, want{})
	s.queued(l.name, 1)
	own := s.tickets(l.name)[0]
	dead := s.open(b)
	dead.begin(l.name, want{})
	s.queued(l.name, 2)
	dead.kill()
	s.queued(l.name, 1)
	s.tailIs(l.name, own)
	l.mustRelease()
	wait.granted().mustRelease()
	s.free(l.name)
}

func ticketGone(t *testing.T, w *world, c *client) {
	s := w.scene(t)
	l := s.open(c).acquire("queue/gone", want{try: true})
	wait := s.open(c).begin(l.name, want{})
	s.queued(l.name, 1)
	own := s.tickets(l.name)[0]
	ctx, cancel := s.context()
	defer cancel()
	if _, err := s.etcd.Delete(ctx, s.layout.Ticket(l.name, own)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another ticket", func() error {
		if now := s.tickets(l.name); len(now) != 1 || slices.Contains(now, own) {
			return fmt.Errorf("the tickets are %q, the lost one was %s", now, own)
		}
		return nil
	})
	l.mustRelease()
	wait.granted().mustRelease()
	s.free(l.name)
}

func silentWatch(t *testing.T, w *world, c *client) {
	s := w.scene(t)
	line := newWire(t, s.target[0])
	l := s.open(c).acquire("queue/silent", want{try: true})
	d := s.open(c, line.Addr)
	line.judgeBy(func(r sent) fate { return fate{loseAnswer: r.path == "/v3/watch"} })
	wait := d.begin(l.name, want{})
	s.queued(l.name, 1)
	l.mustRelease()
	wait.granted().mustRelease()
	s.free(l.name)
}

// manyRequests is more than a waiter needs to join, to learn that the one ahead went, and to take and release the lock.
const manyRequests = 20

// behindHundred has two waiters behind 99 strangers, who give up one after the other. The last waits through a wire.
func behindHundred(t *testing.T, w *world, c *client) {
	s := w.scene(t)
	line := newWire(t, s.target[0])
	d := s.open(c)
	l := d.acquire("queue/hundred", want{try: true})
	strangers := make([]*stranger, 99)
	for i := range strangers {
		strangers[i] = s.stranger(l.name)
	}
	next := d.begin(l.name, want{})
	s.queued(l.name, 100)
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
	last := behind.begin(l.name, want{})
	s.queued(l.name, 101)
	for _, x := range strangers {
		x.dies()
	}
	l.mustRelease()
	taken := next.granted()
	if len(s.get(s.layout.Ticket(l.name, taken.uuid))) == 0 { // otherwise the end of the ticket is that of the hold
		eventually(t, "a look while the one ahead holds the lock", func() error {
			mu.Lock()
			defer mu.Unlock()
			if !holders[taken.uuid] {
				return fmt.Errorf("it has not read the uuid %s", taken.uuid)
			}
			return nil
		})
	}
	taken.mustRelease()
	last.granted().mustRelease()
	s.free(l.name)
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
