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
	// maxGroupSize is how many transactions share a request at most. As soon as this many wait, they are sent.
	maxGroupSize = 8

	// maxGroupWait is how long a transaction waits for others at most, also while a request to a member that hangs is
	// in flight.
	maxGroupWait = time.Millisecond

	// ungroupedFor is how long transactions are sent alone after etcd refused several together.
	ungroupedFor = 10 * time.Second
)

// group lets transactions that each concern one record share requests (ADR 0025): those that come while a request is in
// flight wait until it is answered, until there are maxGroupSize, or for maxGroupWait. A transaction costs etcd less
// than a request, so those of a busy client are faster together. A client with one at a time never waits.
type group struct {
	etcd clientv3.KV

	mu             sync.Mutex
	inFlight       int // requests
	waiting        []*groupedTxn
	flushTimer     *time.Timer // sends the waiting ones
	ungroupedUntil time.Time   // until then every transaction has its own request
}

// groupedTxn is a transaction that waits for others to share a request, or is in flight with them.
type groupedTxn struct {
	ctx      context.Context // of its caller
	txn      locktxn.Txn
	request  *request // once it is in flight
	answered chan struct{}

	// Set before answered is closed.
	resp    *clientv3.TxnResponse
	err     error
	refused bool // the request was refused, perhaps because of another transaction in it
}

// request is a request whose answer several callers wait for.
type request struct {
	callers int
	cancel  context.CancelFunc
}

func newGroup(etcd clientv3.KV) *group {
	g := &group{etcd: etcd}
	g.flushTimer = time.AfterFunc(maxGroupWait, g.flush)
	g.flushTimer.Stop()
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
		defer g.endRequest()
		return txn.Commit(ctx, c.anyMember)
	}
	select {
	case <-t.answered:
	case <-ctx.Done():
		g.drop(t)
		return nil, ctx.Err()
	}
	if t.refused {
		return txn.Commit(ctx, c.anyMember)
	}
	return t.resp, t.err
}

// enter reports whether txn is to be sent alone, now. Otherwise it is queued to wait for others.
func (g *group) enter(ctx context.Context, txn locktxn.Txn) (t *groupedTxn, alone bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inFlight == 0 || g.mustSendAlone(txn) {
		g.inFlight++
		return nil, true
	}
	t = &groupedTxn{ctx: ctx, txn: txn, answered: make(chan struct{})}
	g.waiting = append(g.waiting, t)
	switch len(g.waiting) {
	case 1:
		g.flushTimer.Reset(maxGroupWait)
	case maxGroupSize:
		g.sendWaiting()
	}
	return t, false
}

// mustSendAlone reports whether txn cannot share a request with those that wait.
func (g *group) mustSendAlone(txn locktxn.Txn) bool {
	// etcd would refuse both together
	sameKeys := func(t *groupedTxn) bool { return t.txn.OnlyRecord == txn.OnlyRecord }
	return slices.ContainsFunc(g.waiting, sameKeys) || txn.Bytes() > locktxn.MaxBytes/maxGroupSize ||
		time.Now().Before(g.ungroupedUntil)
}

// endRequest counts a request as ended, and sends those that wait.
func (g *group) endRequest() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inFlight--
	g.sendWaiting()
}

// flush is called by flushTimer.
func (g *group) flush() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sendWaiting()
}

// sendWaiting sends the waiting transactions in one request.
func (g *group) sendWaiting() {
	together := g.waiting
	if len(together) == 0 {
		return
	}
	g.waiting = nil
	g.flushTimer.Stop()
	g.inFlight++
	// It ends when no caller is left. Each of them has a time limit.
	ctx, cancel := context.WithCancel(context.WithoutCancel(together[0].ctx))
	r := &request{callers: len(together), cancel: cancel}
	for _, t := range together {
		t.request = r
	}
	go func() {
		defer cancel()
		g.commit(ctx, together)
		g.endRequest()
	}()
}

// drop removes a transaction whose caller no longer waits for the answer. The transaction may be committed all the
// same.
func (g *group) drop(t *groupedTxn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.request == nil {
		g.waiting = slices.DeleteFunc(g.waiting, func(w *groupedTxn) bool { return w == t })
		return
	}
	t.request.callers--
	if t.request.callers == 0 {
		t.request.cancel()
	}
}

var errTruncated = errors.New("the answer lacks results")

// commit sends transactions in one request, and fills in their results.
func (g *group) commit(ctx context.Context, together []*groupedTxn) {
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
	refused := locktxn.IsRefused(err) && !locktxn.IsPostponed(err)
	if refused {
		g.mu.Lock()
		g.ungroupedUntil = time.Now().Add(ungroupedFor)
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

// nested returns the answer to transaction i of a request.
func nested(resp *clientv3.TxnResponse, i int) (*clientv3.TxnResponse, error) {
	if i >= len(resp.Responses) || resp.Responses[i].GetResponseTxn() == nil {
		return nil, errTruncated
	}
	one := (*clientv3.TxnResponse)(resp.Responses[i].GetResponseTxn())
	one.Header = resp.Header // which only the outer one has
	return one, nil
}
