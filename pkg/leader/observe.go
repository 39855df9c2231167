package leader

import (
	"context"
	"iter"

	"github.com/clustermutex/unlocker/pkg/inspect"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Current returns the record of the leader, nil if nobody leads: its owner, host name and process, its attributes,
// since when it leads (LockedAt) and its Token, which is greater than that of every leader before. A leader whose
// AutoUnlockAt has passed is probably dead.
func Current(ctx context.Context, inspector *inspect.Inspector, name string) (*metadata.Record, error) {
	state, err := inspector.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	return recordOf(state), nil
}

// Observe yields the record of the leader now, nil if nobody leads, and again whenever another process leads, or the
// same anew, until ctx ends or the loop breaks. Signs of life are not yielded.
//
// An error says that it is not known who leads, as with inspect.Inspector.Watch: Observe keeps trying, and then yields
// the leader again.
func Observe(ctx context.Context, inspector *inspect.Inspector, name string) iter.Seq2[*metadata.Record, error] {
	return func(yield func(*metadata.Record, error) bool) {
		const unknown = -1
		last := int64(unknown)
		for state, err := range inspector.Watch(ctx, name) {
			if err != nil {
				last = unknown
				if !yield(nil, err) {
					return
				}
				continue
			}
			r := recordOf(state)
			term := int64(0)
			if r != nil {
				term = r.Token
			}
			if term == last {
				continue
			}
			last = term
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Address returns where a leader said that it can be reached, empty if it did not. It is the leader's own text.
func Address(r *metadata.Record) string {
	if r == nil {
		return ""
	}
	address, _ := r.Attributes[AttributeAddress].(string)
	return address
}

func recordOf(s *inspect.State) *metadata.Record {
	if h := s.Holder(); h != nil {
		return &h.Record
	}
	return nil
}
