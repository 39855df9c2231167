package dashboard_test

import (
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

const (
	abandoned = "billing/invoice-run"
	quiet     = "drm/rotate-keys"
)

// mourning is a night in which two holders died and a third may have.
func mourning() *scene {
	s := busy()
	s.state(abandoned, 40*time.Second)
	s.state("drm/rotate-keys-2", 2*time.Hour, func(st *metadata.Statement) {
		st.Cause = metadata.CauseProcessEnded
		st.ExitCode = nil
		st.Detail = ""
		st.Signal = "SIGKILL"
		st.Witness = metadata.WitnessHost
	})
	s.suspect(quiet, time.Minute, func(st *metadata.Statement) {
		st.Cause = metadata.CausePodDeleted
		st.ExitCode = nil
		st.Detail = ""
		st.How = "pod drm/drm-9 was deleted by force"
	})
	return s
}

func unlocksAbandoned(c *setup.Config) {
	publishing(func(p *staleness.Policy) { p.UnlockAbandoned = true })(c)
}

func unlocksAbandonedSoon(c *setup.Config) {
	publishing(func(p *staleness.Policy) {
		p.UnlockAbandoned = true
		p.AbandonedGrace = time.Second
	})(c)
}

func TestTheListFollowsWhatTheUnlockersDecide(t *testing.T) {
	s := mourning()
	d := s.dashboard(t)
	wantWords(t, ok(t, d, "/"), "Unlockers only report it.")
	version := get(d, "/").Header().Get("ETag")
	s.unlockers = []protocol.Unlocker{unlocker("eu-1", s.now)}
	s.unlockers[0].Sweep.Abandoned = metadata.SweepUnlock
	if get(d, "/").Header().Get("ETag") == version {
		t.Error("the version of the list is the same")
	}
	s.now = s.now.Add(2 * time.Second) // no lock has changed since: what goes by itself needs nobody
	wantWords(t, ok(t, d, "/"), "catalog/sync/eu is 3m late")
}
