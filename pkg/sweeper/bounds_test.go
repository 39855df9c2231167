package sweeper

import (
	"fmt"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestRemovalsAreForgottenWithoutScrapes(t *testing.T) {
	m := newMetrics(&Config{})
	for i := range 2*maxUnlocked + 1 {
		m.countRemoval(&metadata.Record{Name: fmt.Sprint(i)}, false, time.Unix(int64(i), 0), 0)
	}
	if n := len(m.unlocked); n != maxUnlocked {
		t.Errorf("%d removals are remembered, want %d", n, maxUnlocked)
	}
}

func TestScanFindsDeathsBeyondTheRememberedOnes(t *testing.T) {
	s := &Sweeper{nextScan: time.Hour, wakeUp: make(chan struct{}, 1)}
	for range 2 * maxDeaths {
		s.HolderDied("a")
	}
	if s.queueDeaths(); s.nextScan != 0 {
		t.Errorf("the next scan is at %v", s.nextScan)
	}
}
