package sweeper

import (
	"fmt"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestRemovalsAreForgottenWithoutScrapes(t *testing.T) {
	m := newMetrics(&Config{})
	for i := range 2*maxRemovalSeries + 1 {
		m.countRemoval(&metadata.Record{Name: fmt.Sprint(i)}, false, time.Unix(int64(i), 0), 0)
	}
	if n := len(m.unlocked); n != maxRemovalSeries {
		t.Errorf("%d removals are remembered, want %d", n, maxRemovalSeries)
	}
}
