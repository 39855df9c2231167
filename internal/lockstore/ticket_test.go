package lockstore_test

import (
	"errors"
	"testing"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestRemoveTicketRemovesOnlyTheTicketThatWasSeen(t *testing.T) {
	t.Parallel()
	w := start(t)
	key := w.l.Ticket("a", "1")
	behind := w.l.Ticket("a", "11")
	seen := metadata.Waiter{Lock: "a", ID: "1", Revision: w.put(key, "{}")}
	w.put(behind, "{}")
	if err := w.RemoveTicket(t.Context(), seen); err != nil {
		t.Fatal(err)
	}
	if err := w.RemoveTicket(t.Context(), seen); !errors.Is(err, metadata.ErrChanged) {
		t.Errorf("a second time: %v", err)
	}
	w.put(key, "{}") // somebody else queues under the same key
	if err := w.RemoveTicket(t.Context(), seen); !errors.Is(err, metadata.ErrChanged) {
		t.Errorf("another's ticket: %v", err)
	}
	for _, k := range []string{key, behind} {
		if resp, err := w.etcd.Get(t.Context(), k); err != nil || resp.Count != 1 {
			t.Errorf("%s is gone, or %v", k, err)
		}
	}
}
