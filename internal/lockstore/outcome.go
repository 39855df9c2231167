package lockstore

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// outcome reads the answer to one removal from etcd.
func outcome(r *locktxn.Removal, resp *etcdserverpb.TxnResponse) error {
	if resp.Succeeded {
		return nil
	}
	for _, op := range resp.Responses[1:] { // the first one is the record
		if wroteEnding(r, op.GetResponseRange()) {
			return nil // an earlier attempt did it
		}
	}
	return metadata.ErrChanged
}

// wroteEnding reports whether the history holds the very ending that r writes.
func wroteEnding(r *locktxn.Removal, history *etcdserverpb.RangeResponse) bool {
	return len(history.GetKvs()) == 1 && string(history.Kvs[0].Value) == r.History()
}

// recheck reads what became of a batch whose answer was lost. Sending it again would be just as safe, but the caller
// may no longer want these removals.
func (s *Store) recheck(ctx context.Context, b batch, cause error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	reads := make([]locktxn.Txn, len(b.removals))
	for i, r := range b.removals {
		reads[i] = locktxn.ReadRemoval(s.layout, r.Record)
	}
	resp, err := locktxn.Nest(reads).Commit(ctx, s.etcd)
	for i, r := range b.removals {
		*r.result = &unknownError{cause}
		if err == nil {
			*r.result = outcomeByReading(r.Removal, resp.Responses[i].GetResponseTxn(), *r.result)
		}
	}
}

// outcomeByReading returns the outcome of a removal, by what [locktxn.ReadRemoval] read. It stays unknown while the
// hold is there, because the removal may still be done.
func outcomeByReading(r *locktxn.Removal, look *etcdserverpb.TxnResponse, unknown error) error {
	uuid := look.Responses[0].GetResponseRange()
	record := look.Responses[1].GetResponseRange()
	history := look.Responses[2].GetResponseRange()
	token := int64(0)
	if len(uuid.Kvs) == 1 {
		token = uuid.Kvs[0].CreateRevision
	}
	switch {
	case r.Record.Token != 0 && wroteEnding(r, history):
		return nil
	case r.Record.Token == 0 && record.Count == 0:
		return nil // it had no holder: all that matters is that it is gone
	case token == r.Record.Token:
		return unknown
	}
	return metadata.ErrChanged
}
