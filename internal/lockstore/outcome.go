package lockstore

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// outcome reads the answer to one removal.
func outcome(r *locktxn.Removal, resp *etcdserverpb.TxnResponse) error {
	if resp.Succeeded {
		return nil
	}
	for _, op := range resp.Responses[1:] { // the first one is the record
		if isOurs(r, op.GetResponseRange()) {
			return nil // an earlier sending did it
		}
	}
	return metadata.ErrChanged
}

func isOurs(r *locktxn.Removal, history *etcdserverpb.RangeResponse) bool {
	return len(history.GetKvs()) == 1 && string(history.Kvs[0].Value) == r.History()
}

// lookAgain finds out what became of a batch whose answer got lost, by reading: sending it again would be just as safe,
// but the caller may not want these removals any more.
func (s *Store) lookAgain(ctx context.Context, b batch, cause error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	looks := make([]locktxn.Txn, len(b.removals))
	for i, r := range b.removals {
		looks[i] = locktxn.ReadRemoval(s.layout, r.Record)
	}
	resp, err := locktxn.Nest(looks).Commit(ctx, s.etcd)
	for i, r := range b.removals {
		*r.result = &unknownError{cause}
		if err == nil {
			*r.result = judge(r.Removal, resp.Responses[i].GetResponseTxn(), *r.result)
		}
	}
}

// judge says what became of a removal, by what [locktxn.ReadRemoval] found. It stays unknown while the hold is there, as the
// removal may still be done.
func judge(r *locktxn.Removal, look *etcdserverpb.TxnResponse, unknown error) error {
	uuid := look.Responses[0].GetResponseRange()
	record := look.Responses[1].GetResponseRange()
	history := look.Responses[2].GetResponseRange()
	token := int64(0)
	if len(uuid.Kvs) == 1 {
		token = uuid.Kvs[0].CreateRevision
	}
	switch {
	case r.Record.Token != 0 && isOurs(r, history):
		return nil
	case r.Record.Token == 0 && record.Count == 0:
		return nil // it was nobody's: that it is gone is all that matters
	case token == r.Record.Token:
		return unknown
	}
	return metadata.ErrChanged
}
