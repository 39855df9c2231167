package etcdretry

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
)

const (
	// groupSize is how many transactions share a request. As soon as this many wait, they are sent.
	groupSize = 8

	// groupWait is the longest that a transaction waits for others, also while a request to a member that hangs is in
	// flight.
	groupWait = time.Millisecond

	// ungrouped is how long transactions are sent alone after etcd refused several together.
	ungrouped = 10 * time.Second
)

// group lets transactions that each concern one record share requests (ADR 0025): those that come while a request is in
// flight wait until it is answered, until there are groupSize, or for groupWait. A transaction costs etcd less than a
// request, so those of a busy client are faster together. A client with one at a time never waits.
type group struct {
	etcd clientv3.KV

	mu        sync.Mutex
	underWay  int // requests
	waiting   []*grouped
	impatient *time.Timer // sends what waits
	apart     time.Time   // until then there are no groups
}

// grouped is a transaction that waits for others, or is in flight with them.
type grouped struct {
	ctx      context.Context // of its caller
	txn      locktxn.Txn
	request  *request // once it is in flight
	answered chan struct{}

	// Set before answered is closed.
	resp    *clientv3.TxnResponse
	err     error
	refused bool // together with others, perhaps because of one of them
}

// request is a request that several callers wait for.
type request struct {
	callers int
	cancel  context.CancelFunc
}

func newGroup(etcd clientv3.KV) *group {
	g := &group{etcd: etcd}
	g.impatient = time.AfterFunc(groupWait, g.sendNow)
	g.impatient.Stop()
	return g
}

// groupOf returns the group for a transaction. An etcd that is out of space refuses every request with a put in it, so
// releases, which have none, never share a request with acquisitions.
func (c *Client) groupOf(txn locktxn.Txn) *group {
	if slices.ContainsFunc(txn.Then, clientv3.Op.IsPut) {
		return c.acquiring
	}
	return c.releasing
}

// commitGrouped commits txn, perhaps in one request with others.
func (c *Client) commitGrouped(ctx context.Context, txn locktxn.Txn) (*clientv3.TxnResponse, error) {
	g := c.groupOf(txn)
	t, alone := g.enter(ctx, txn)
	if alone {
		defer g.leave()
		return txn.Commit(ctx, c.asks)
	}
	select {
	case <-t.answered:
	case <-ctx.Done():
		g.abandon(t)
		return nil, ctx.Err()
	}
	if t.refused {
		return txn.Commit(ctx, c.asks)
	}
	return t.resp, t.err
}

// enter reports whether txn is to be sent alone, now. Otherwise it is queued to wait for others.
func (g *group) enter(ctx context.Context, txn locktxn.Txn) (t *grouped, alone bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.underWay == 0 || g.alone(txn) {
		g.underWay++
		return nil, true
	}
	t = &grouped{ctx: ctx, txn: txn, answered: make(chan struct{})}
	g.waiting = append(g.waiting, t)
	switch len(g.waiting) {
	case 1:
		g.impatient.Reset(groupWait)
	case groupSize:
		g.send()
	}
	return t, false
}

// alone reports whether txn cannot be sent with those that wait.
func (g *group) alone(txn locktxn.Txn) bool {
	sameKeys := func(t *grouped) bool { return t.txn.OnlyRecord == txn.OnlyRecord } // etcd would refuse both together
	return slices.ContainsFunc(g.waiting, sameKeys) || txn.Bytes() > locktxn.MaxBytes/groupSize ||
		time.Now().Before(g.apart)
}

// leave is called when a request has ended.
func (g *group) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.underWay--
	g.send()
}

func (g *group) sendNow() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.send()
}

// send sends what waits, in one request.
func (g *group) send() {
	together := g.waiting
	if len(together) == 0 {
		return
	}
	g.waiting = nil
	g.impatient.Stop()
	g.underWay++
	// It ends when no caller is left. Each of them has a time limit.
	ctx, cancel := context.WithCancel(context.WithoutCancel(together[0].ctx))
	r := &request{callers: len(together), cancel: cancel}
	for _, t := range together {
		t.request = r
	}
	go func() {
		defer cancel()
		g.commit(ctx, together)
		g.leave()
	}()
}

// abandon is called when the caller no longer waits for the answer. The transaction may be committed all the same.
func (g *group) abandon(t *grouped) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.request == nil {
		g.waiting = slices.DeleteFunc(g.waiting, func(w *grouped) bool { return w == t })
		return
	}
	t.request.callers--
	if t.request.callers == 0 {
		t.request.cancel()
	}
}

var errTruncated = errors.New("the answer lacks results")

func (g *group) commit(ctx context.Context, together []*grouped) {
	if len(together) == 1 {
		t := together[0]
		t.resp, t.err = t.txn.Commit(ctx, g.etcd)
		close(t.answered)
		return
	}
	txns := make([]locktxn.Txn, len(together))
	for i, t := range together {
		txns[i] = t.txn
	}
	resp, err := locktxn.Nest(txns).Commit(ctx, g.etcd)
	refused := err != nil && Judge(err) == Refused
	if refused {
		g.mu.Lock()
		g.apart = time.Now().Add(ungrouped)
		g.mu.Unlock()
	}
	for i, t := range together {
		t.err, t.refused = err, refused
		if err == nil {
			t.resp, t.err = nested(resp, i)
		}
		close(t.answered)
	}
}

// nested returns the answer to transaction i.
func nested(resp *clientv3.TxnResponse, i int) (*clientv3.TxnResponse, error) {
	if i >= len(resp.Responses) || resp.Responses[i].GetResponseTxn() == nil {
		return nil, errTruncated
	}
	one := (*clientv3.TxnResponse)(resp.Responses[i].GetResponseTxn())
	one.Header = resp.Header // which only the outer one has
	return one, nil
}
