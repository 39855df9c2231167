package lockstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// While thousands of locks are removed, taking and releasing one waits for a batch or two, not for all of them.
func TestAMassExpiryDoesNotDelayHolders(t *testing.T) {
	const locks = 3000
	w := start(t)
	removals := make([]metadata.Removal, locks)
	each(t, locks, func(i int) { removals[i] = removal(w.hold(fmt.Sprint("due/", i), uuid(i))) })
	began := time.Now()
	removed := make(chan []error, 1)
	go func() { removed <- w.AutoUnlock(t.Context(), removals) }()
	times := 0
	longest := time.Duration(0)
	for {
		select {
		case errs := <-removed:
			for i, err := range errs {
				if err != nil {
					t.Fatalf("%s: %v", removals[i].Record.Name, err)
				}
			}
			took := time.Since(began)
			t.Logf("%d were removed in %v; %d others were taken and given back, one in %v", locks, took, times, longest)
			if times < 5 {
				t.Errorf("taking a lock meanwhile is delayed")
			}
			return
		default:
		}
		asked := time.Now()
		r := w.hold("another", uuid(locks+times))
		if _, err := locktxn.Release(w.l, locktxn.Hold{Lock: r.Name, UUID: r.UUID, Token: r.Token}).Commit(t.Context(),
			w.etcd); err != nil {
			t.Fatal(err)
		}
		times, longest = times+1, max(longest, time.Since(asked))
	}
}
