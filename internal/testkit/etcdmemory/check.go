package etcdmemory

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxOps is etcd's default limit of operations in one transaction.
const maxOps = 128

// check refuses a transaction that is invalid whatever the keys are. A nested one may have only as many operations as
// the outer one leaves.
func check(r *pb.TxnRequest, room int) error {
	used := max(len(r.Compare), len(r.Success), len(r.Failure))
	if used > room {
		return rpctypes.ErrGRPCTooManyOps
	}
	for _, c := range r.Compare {
		if len(c.Key) == 0 {
			return rpctypes.ErrGRPCEmptyKey
		}
	}
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			if err := checkOp(op, room-used); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkOp(op *pb.RequestOp, room int) error {
	put := op.GetRequestPut()
	switch {
	case op.GetRequestTxn() != nil:
		return check(op.GetRequestTxn(), room)
	case put != nil && (put.IgnoreValue || put.IgnoreLease):
		return status.Error(codes.Unimplemented, "an etcd in memory does not support ignore_value and ignore_lease")
	case put != nil && len(put.Key) > 0, len(op.GetRequestRange().GetKey()) > 0,
		len(op.GetRequestDeleteRange().GetKey()) > 0:
		return nil
	}
	return rpctypes.ErrGRPCEmptyKey
}

// checkOverlap refuses a transaction that may put a key twice, or both put and delete it.
func checkOverlap(r *pb.TxnRequest) error {
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		if _, err := collect(ops); err != nil {
			return err
		}
	}
	return nil
}

// writes is the set of keys that operations may write.
type writes struct {
	puts    map[string]bool
	deletes []*pb.DeleteRangeRequest
}

// deleted reports whether a key may be deleted. Like etcd, it overlooks unbounded ranges.
func (w *writes) deleted(key string) bool {
	for _, d := range w.deletes {
		if key == string(d.Key) && len(d.RangeEnd) == 0 || key >= string(d.Key) && key < string(d.RangeEnd) {
			return true
		}
	}
	return false
}

// add adds puts. Those in except are alternatives to earlier ones and may repeat them.
func (w *writes) add(puts, except map[string]bool) error {
	for key := range puts {
		if w.puts[key] && !except[key] || w.deleted(key) {
			return rpctypes.ErrGRPCDuplicateKey
		}
	}
	for key := range puts {
		w.puts[key] = true
	}
	return nil
}

// collect returns what a branch may write, whichever branches its nested transactions take. As in etcd, a key deleted
// in a nested transaction may be put in an earlier one.
func collect(ops []*pb.RequestOp) (writes, error) {
	w := writes{puts: map[string]bool{}}
	for _, op := range ops {
		if d := op.GetRequestDeleteRange(); d != nil {
			w.deletes = append(w.deletes, d)
		}
	}
	for _, op := range ops {
		if nested := op.GetRequestTxn(); nested != nil {
			if err := w.nest(nested); err != nil {
				return w, err
			}
		}
	}
	for _, op := range ops {
		if put := op.GetRequestPut(); put != nil {
			if err := w.add(map[string]bool{string(put.Key): true}, nil); err != nil {
				return w, err
			}
		}
	}
	return w, nil
}

func (w *writes) nest(r *pb.TxnRequest) error {
	success, err := collect(r.Success)
	if err != nil {
		return err
	}
	failure, err := collect(r.Failure)
	if err != nil {
		return err
	}
	if err := w.add(success.puts, nil); err != nil {
		return err
	}
	if err := w.add(failure.puts, success.puts); err != nil {
		return err
	}
	w.deletes = append(append(w.deletes, success.deletes...), failure.deletes...)
	return nil
}
