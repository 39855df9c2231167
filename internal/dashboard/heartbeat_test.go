package dashboard_test

import (
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// beating puts a lock into the scene whose heartbeat puts off a deadline of a minute every 20 seconds, last at the
// given age.
func beating(s *scene, name string, age time.Duration) {
	at := func(ago time.Duration) string { return metadata.FormatTime(s.now.Add(-ago)) }
	s.put(name,
		metadata.Field{Name: "uuid", Value: uuid(name), Version: 1}, metadata.Field{Name: "owner", Value: "search",
			Version: 1},
		metadata.Field{Name: "locked_at", Value: at(age + 10*time.Minute), Version: 1},
		metadata.Field{Name: "alive", Value: metadata.FormatAlive(s.now.Add(-age), ""), Version: 30},
		metadata.Field{Name: "alert_at", Value: at(age - time.Minute), Version: 31},
		metadata.Field{Name: "auto_unlock_at", Value: at(age - time.Minute), Version: 31})
}

func TestAListTurnsExpiringWithoutAChange(t *testing.T) {
	s := newScene()
	beating(s, "search/reindex", 47*time.Second)
	d := s.dashboard(t)
	wantWords(t, ok(t, d, "/"), "held search/reindex")
	s.now, s.fresh.Heard = s.now.Add(2*time.Second), s.now.Add(2*time.Second)
	wantWords(t, ok(t, d, "/"), "expiring search/reindex")
}
