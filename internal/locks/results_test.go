package locks

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

func TestSearchStopsWhenItsLastReaderLeaves(t *testing.T) {
	locks := make([]*metadata.Record, 5000)
	for i := range locks {
		locks[i] = &metadata.Record{Name: fmt.Sprintf("%04d", i)}
	}
	s := Build(Input{Locks: locks}, staleness.Moment{})
	ctx, leave := context.WithCancel(t.Context())
	looked := 0
	q := &Query{regexps: 1, Terms: []Term{{isRegexp: true, match: func(*Subject, time.Time) bool {
		looked++
		leave()
		return true
	}}}}
	s.matching(ctx, q, time.Now())
	if looked > len(locks)/10 {
		t.Errorf("it looked at %d locks", looked)
	}
}
