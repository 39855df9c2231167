package lockview

import (
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// snapshot is what etcd holds at one revision, as far as the view keeps it.
type snapshot struct {
	layout protocol.Layout
	intern *interner

	locks      index
	irregulars map[string]*irregular // by lock; the others are canonical
	queues     queues
	unlockers  map[string]Unlocker
	stated     statements
	delays     map[string]metadata.Delay // by lock or share
	free       map[string]time.Duration  // locks with a queue and without a holder, and since when

	foreign   foreignKeys
	misplaced misplacedRecords
}

func newSnapshot(l protocol.Layout, i *interner) *snapshot {
	return &snapshot{
		layout: l, intern: i, irregulars: map[string]*irregular{}, queues: queues{}, unlockers: map[string]Unlocker{},
		stated: newStatements(), delays: map[string]metadata.Delay{}, free: map[string]time.Duration{},
		foreign:   foreignKeys{sample: map[string]bool{}, in: map[string]int{}},
		misplaced: misplacedRecords{layout: l, byPrefix: map[string]*misplaced{}},
	}
}
