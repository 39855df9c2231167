package leader

import (
	"context"
	"iter"

	"github.com/clustermutex/unlocker/pkg/inspect"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Current returns the record of the leader; nil if there is none. It has the owner, host name and process, the
// attributes, the time since when it leads (LockedAt) and the Token, which is greater than that of every earlier
// leader. A leader whose AutoUnlockAt has passed is probably dead.
func Current(ctx context.Context, inspector *inspect.Inspector, name string) (*metadata.Record, error) {
	state, err := inspector.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	return recordOf(state), nil
}

// Observe yields the record of the current leader, nil if there is none, and again whenever the leader changes or is
// elected anew, until ctx ends or the loop breaks. Signs of life are not yielded.
//
// An error means that the leader is unknown, as with inspect.Inspector.Watch: Observe keeps trying, and then yields the
// leader again.
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

// Address returns the address in a leader's record; empty if there is none. It is text that the leader wrote: escape
// it.
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
