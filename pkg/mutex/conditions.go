package mutex

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
)

// checkWrites refuses what etcd would refuse, and what would reach into the locks.
func (c *Client) checkWrites(only []clientv3.Cmp, with []clientv3.Op, documents locktxn.Documents, room int) error {
	if n := max(len(only), len(with)); n > room {
		return fmt.Errorf("%d conditions or writes, at most %d fit into the transaction", n, room)
	}
	for _, compare := range only {
		if len(compare.KeyBytes()) == 0 {
			return errors.New("a condition names no key")
		}
	}
	for _, op := range with {
		key := string(op.KeyBytes())
		switch {
		case !op.IsPut() && !op.IsDelete():
			return errors.New("Then takes puts and deletions: reads and transactions would have nowhere to answer to")
		case key == "":
			return errors.New("a write names no key")
		case c.reaches(key, string(op.RangeBytes())) && !documents.Cover(op):
			return fmt.Errorf("the write to %s lies among the locks below %s", strconv.Quote(clip(key)),
				c.layout.Prefix())
		}
	}
	return nil
}

// checkSize refuses what etcd would refuse for its size: only one of its answers to that says that nothing was done.
func checkSize(t locktxn.Txn) error {
	if n := t.Bytes(); n > locktxn.MaxBytes {
		const mebibyte = 1 << 20
		return fmt.Errorf("the conditions and writes make a transaction of %.1f MiB, and etcd takes 1.5 MiB",
			float64(n)/mebibyte)
	}
	return nil
}

// reaches reports whether the key, or the range up to end, is one of the protocol's.
func (c *Client) reaches(key, end string) bool {
	prefix := c.layout.Prefix()
	if end == "" {
		return strings.HasPrefix(key, prefix)
	}
	return (end == "\x00" || end > prefix) && key < protocol.End(prefix)
}

// failed is the error of compares of the caller's that did not hold, nil where all did. first is the number of the
// operation that tells of the first one.
func (c *Client) failed(lock string, r etcdretry.Answer, first int, only []clientv3.Cmp) *ConditionError {
	failed := locktxn.Failed(r.TxnResponse, first, len(only))
	if len(failed) == 0 {
		return nil
	}
	e := &ConditionError{Lock: lock, At: c.wall()}
	for i, compare := range only {
		if keys, ok := failed[i]; ok {
			e.Failed = append(e.Failed, FailedCondition{Compare: compare, Keys: keys.Kvs})
		}
	}
	return e
}
