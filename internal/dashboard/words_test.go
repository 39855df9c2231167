package dashboard_test

import (
	"testing"
	"time"
)

func TestTimesAheadAreRoundedToTheNearestUnit(t *testing.T) {
	s := newScene()
	for name, ahead := range map[string]time.Duration{
		"a": 5*time.Minute - time.Second, "b": 4*time.Minute + 29*time.Second, "c": 2 * time.Minute,
		"d": 119 * time.Second,
		"e": 59*time.Minute + 40*time.Second, "f": 24*time.Hour - 10*time.Second, "g": 3*24*time.Hour + 40*time.Minute,
		"h": 240*time.Hour - time.Minute,
	} {
		s.add(hold{name: name, owner: "o", held: 5*time.Minute - time.Second, alert: ahead,
			unlock: ahead + 1000*time.Hour})
	}
	page := ok(t, s.dashboard(t), "/?sort=name")
	wantWords(t, page, "a o unknown 4m in 5m", "b o unknown 4m in 4m", "c o unknown 4m in 2m", "d o unknown 4m in 1:59",
		"e o unknown 4m in 1h",
		"f o unknown 4m in 1d", "g o unknown 4m in 3d 1h", "h o unknown 4m in 10d")
}
