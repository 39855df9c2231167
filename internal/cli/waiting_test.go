package cli

import (
	"testing"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestLostLockOverridesTheCommandsStatus(t *testing.T) {
	for work, want := range map[error]int{nil: ExitLost, &statusError{status: 7}: ExitLost} {
		if got := status((&job{}).outcome(work, mutex.ErrNotHeld)); got != want {
			t.Errorf("after %v the status is %d, want %d", work, got, want)
		}
	}
}

func TestUnreadableHoldIsReportedAsUnchanged(t *testing.T) {
	err := (&operatorAction{}).actionError(t.Context(), nil, &metadata.Record{Name: "a"}, "ask", metadata.ErrChanged)
	if got := err.Error(); status(err) != ExitHeld || got != "nothing was done: a has changed meanwhile: look again" {
		t.Errorf("the status is %d: %s", status(err), got)
	}
}
