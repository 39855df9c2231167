package lockview_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

func source(s *lockstore.Store) lockview.Source {
	return lockview.Source{List: s.List, Watch: s.Watch, Ending: s.Ending}
}

// until waits until f is true of the view, looking again whenever it changed.
func until(t testing.TB, v *lockview.View, what string, f func() bool) {
	t.Helper()
	late := time.After(2 * time.Minute)
	for {
		changed := v.Changed()
		if f() {
			return
		}
		select {
		case <-changed:
		case <-time.After(100 * time.Millisecond): // signs of life do not count as changes
		case <-late:
			t.Fatalf("never: %s; %+v", what, v.Fresh())
		}
	}
}

func name(i int) string { return fmt.Sprintf("billing/invoice/%06d", i) }
