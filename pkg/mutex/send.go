package mutex

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// MaxRetryDelay is the longest pause between two attempts to reach etcd. An unlocker must warn for longer than this
// before it removes a lock, so that after an outage of etcd a live holder gets to extend first.
const MaxRetryDelay = etcdretry.MaxDelay

// answer is what is known of a transaction after it was sent, once or several times.
type answer struct {
	*clientv3.TxnResponse // nil when there is none

	doubt bool // an earlier sending may have been committed, or may be so later
}

// keys is what the operation with this number read.
func (a answer) keys(op int) *clientv3.GetResponse { return locktxn.Keys(a.TxnResponse, op) }

// record is the record that the operation with this number read.
func (c *Client) record(lock string, a answer, op int) metadata.Document {
	return metadata.Decode(lock, locktxn.Fields(c.layout, a.keys(op)))
}

// send commits txn, which must be harmless to repeat, and repeats it until its outcome is known, it is refused or ctx
// ends.
func (c *Client) send(ctx context.Context, txn locktxn.Txn) (answer, error) {
	a, err := c.retry.Send(ctx, txn)
	return answer{a.TxnResponse, a.Doubt}, err
}

// sendFor is send for so long at most.
func (c *Client) sendFor(ctx context.Context, most time.Duration, txn locktxn.Txn) (answer, error) {
	a, err := c.retry.SendFor(ctx, most, txn)
	return answer{a.TxnResponse, a.Doubt}, err
}

func (c *Client) slice(ctx context.Context) time.Duration { return c.retry.Attempt(ctx) }

// ended is why ctx ended.
func ended(ctx context.Context) error { return etcdretry.Ended(ctx, ErrClosed) }

func pause(ctx context.Context, d time.Duration) bool { return etcdretry.Pause(ctx, d) }

func delay(attempt int) time.Duration { return etcdretry.Delay(attempt) }

func jitter(d time.Duration) time.Duration { return etcdretry.Jitter(d) }
