package lockview

import "github.com/clustermutex/unlocker/internal/protocol"

// touched is what the watch reported while a list was being read. The list may show it before or after the change.
type touched struct {
	locks, queues, unlockers, delays map[string]bool

	statements map[protocol.Key]bool
	foreign    bool
}

func newTouched() *touched {
	return &touched{locks: map[string]bool{}, queues: map[string]bool{}, unlockers: map[string]bool{},
		delays: map[string]bool{}, statements: map[protocol.Key]bool{}}
}
