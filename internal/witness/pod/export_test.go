package pod

import (
	"encoding/json"
	"time"

	"github.com/clustermutex/unlocker/internal/witness/pod/podproof"
)

// Brief parses a pod.
func Brief(text string) (podproof.Pod, error) {
	var p pod
	err := json.Unmarshal([]byte(text), &p)
	return p.summary(), err
}

// Feed processes the current state of a pod.
func (w *Witness) Feed(text string) error {
	var p pod
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	return w.feeds[""].Add(&p)
}

// Confirmed reports whether the API server has confirmed a pod, at that moment or later, as it was watched.
func (w *Witness) Confirmed(uid string, since time.Duration) bool {
	return w.podToConfirm(unconfirmedPod{uid, since}) == nil
}

// CatchUp says that all changes of pods have arrived.
func (w *Witness) CatchUp() error { return w.feeds[""].Bookmark("") }

// Fail says that the API server did not answer.
func (w *Witness) Fail() { w.feeds[""].recordFailure() }

// Pod returns what is known about a pod.
func (w *Witness) Pod(uid string) podproof.Pod {
	p, _ := w.pods.find(uid, "", "")
	return *p
}
