package locks

import (
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

func TestCostlySearchIsNotRepeatedAtOnce(t *testing.T) {
	next := Build(Input{Locks: []*metadata.Record{{Name: "a"}}}, staleness.Moment{})
	before := []deadlock.Cycle{{}}
	c := cycleSearch{found: before, next: time.Now().Add(time.Hour)}
	if got := c.cyclesOf(next)(); len(got) != 1 {
		t.Errorf("%d cycles during the pause, want those found before", len(got))
	}
	c.next = time.Now()
	if got := c.cyclesOf(next)(); len(got) != 0 {
		t.Errorf("%d cycles after the pause, want those of the snapshot", len(got))
	}
}
