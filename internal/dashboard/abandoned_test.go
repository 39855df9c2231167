package dashboard_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/lockjson"
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

func TestAnAbandonedLockSaysWhatIsNext(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*scene, *setup.Config)
		want   string
	}{
		"only reported": {func(*scene, *setup.Config) {}, "Unlockers only report it."},
		"alerts only": {func(s *scene, c *setup.Config) {
			unlocksAbandoned(c)
			s.unlockers[0].Mode = "alert-only"
		}, "Nobody unlocks it: the unlockers only watch (alert-only)."},
		"no unlocker": {func(s *scene, c *setup.Config) {
			unlocksAbandoned(c)
			s.unlockers = nil
		}, "Nobody unlocks it: no unlocker is running."},
		"dry run and alerts only": {func(s *scene, c *setup.Config) {
			unlocksAbandoned(c)
			s.unlockers = append(s.unlockers, unlocker("eu-2", s.now))
			s.unlockers[0].Mode = "alert-only"
			s.unlockers[1].Mode = "dry-run"
		}, "Nobody unlocks it: the unlockers only watch (alert-only, dry-run)."},
		"one of two unlocks it": {func(s *scene, c *setup.Config) {
			s.unlockers = append(s.unlockers, unlocker("eu-2", s.now))
			s.unlockers[1].Sweep.Abandoned = metadata.SweepUnlock
		}, "is dead, and it goes by itself: auto-unlock in 0:08"},
		"an unlocker that does not publish its policy": {func(s *scene, c *setup.Config) {
			s.unlockers[0].Sweep = nil
		}, "Whether it is unlocked now is not known: eu-1 does not publish its policy."},
		"excluded": {func(s *scene, c *setup.Config) {
			publishing(func(p *staleness.Policy) { p.UnlockAbandoned = true }, "billing/*")(c)
		}, "Nobody unlocks it: the unlockers exclude it by its name."},
		"held back": {func(s *scene, c *setup.Config) {
			unlocksAbandonedSoon(c)
			s.unlockers[0].HeldBack = []string{"etcd"}
		}, "is dead, and auto-unlock is paused: etcd takes no writes"},
		"late": {func(_ *scene, c *setup.Config) {
			unlocksAbandonedSoon(c)
		}, "is dead, and it goes by itself: auto-unlock due."},
		"stale": {func(s *scene, c *setup.Config) {
			unlocksAbandoned(c)
			s.away = errAway
			s.fresh.Heard = s.now.Add(-5 * time.Minute)
			s.fresh.Synced = false
		}, "is dead, and it goes by itself: auto-unlock in 0:08"},
	} {
		t.Run(name, func(t *testing.T) {
			s := mourning()
			page := ok(t, s.dashboard(t, func(config *setup.Config) { c.change(s, config) }), "/lock?name="+abandoned)
			if !strings.Contains(words(page), c.want) {
				t.Errorf("the page does not say %q: %s", c.want, words(page))
			}
		})
	}
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

func TestTheListPutsTheAbandonedBelowTheExpiredAndAboveWhatAlerts(t *testing.T) {
	s := mourning()
	s.add(hold{name: "late", owner: "ops", held: time.Hour, alert: -2 * time.Minute, unlock: -time.Minute})
	d := s.dashboard(t, unlocksAbandoned)
	want := "late drm/rotate-keys-2 billing/invoice-run"
	if got := strings.Join(names(t, d, "/api/v1/locks")[:3], " "); got != want && got != "late billing/invoice-run "+
		"drm/rotate-keys-2" {
		t.Errorf("the first are %s", got)
	}
	if got := names(t, d, "/api/v1/locks?q=state:abandoned"); len(got) != 2 {
		t.Errorf("the search finds %v", got)
	}
	summary, _ := fetch[map[string]any](t, d, "/api/v1/summary")
	if summary["abandoned"] != 2.0 || summary["expired"] != 1.0 {
		t.Errorf("the summary is %v", summary)
	}
}

func TestOwnersAndSectionsCountTheAbandoned(t *testing.T) {
	d := mourning().dashboard(t)
	wantWords(t, ok(t, d, "/owners"), "drm abandoned 2 0 1 0 0 0")
	wantWords(t, ok(t, d, "/?group=owner"), "drm 2 locks, 1 abandoned")
}

func TestTheLockPageSaysWhichContainerHoldsIt(t *testing.T) {
	s := newScene()
	s.add(hold{name: "a", owner: "billing", held: time.Minute, alert: time.Hour, unlock: 2 * time.Hour,
		attributes: map[string]string{"pod_namespace": "billing", "pod_name": "run-0", "container": "worker",
			"boot_id": "2f0c1a52"}})
	wantWords(t, ok(t, s.dashboard(t), "/lock?name=a"), "pod billing/run-0 container worker boot 2f0c1a52")
}

func TestTheVerdictNamesWhatGoesByItselfLast(t *testing.T) {
	s := mourning()
	wantWords(t, ok(t, s.dashboard(t, unlocksAbandoned), "/"),
		"catalog/sync/eu is 3m late, and its holder has never reported.", "Also: 1 malformed.")
	s.locks = slices.DeleteFunc(s.locks, func(r *metadata.Record) bool {
		return r.Name == "catalog/sync/eu" || r.Name == "legacy/cron"
	})
	wantWords(t, ok(t, s.dashboard(t, unlocksAbandoned), "/"), "The holder of billing/invoice-run is dead, "+
		"and it goes by itself: auto-unlock in 0:08 under a minute. 2 wait, the longest for 9m. 3 locks")
}

func TestACommandThatOutlivesItsProcessKeepsTheLock(t *testing.T) {
	s := busy()
	s.suspect(quiet, time.Minute, func(st *metadata.Statement) {
		st.Cause = metadata.CauseCommandLives
		st.ExitCode = nil
		st.Detail = ""
		st.How = "process 71 on drm-9 ended and left 2 processes of its command alive"
	})
	d := s.dashboard(t, unlocksAbandoned)
	page := ok(t, d, "/lock?name="+quiet)
	wantWords(t, page, "A witness says that its process ended 1m ago, and its command has not: process 71 on drm-9 "+
		"ended and left 2 processes of its command alive. The lock stays until that has ended, too.")
	if list := ok(t, d, "/?q=name:="+quiet); strings.Contains(list, "probably dead") {
		t.Error("the list takes the holder for dead")
	}
}

func TestADeathThatTheHolderDisputesIsShownAndNotBelieved(t *testing.T) {
	s := busy()
	s.state(abandoned, 40*time.Second, func(st *metadata.Statement) { st.Revision = 1 })
	d := s.dashboard(t, unlocksAbandoned)
	wantWords(t, ok(t, d, "/lock?name="+abandoned), "The witness eu-1 says that its container ended 40s ago with exit "+
		"code 137 (OOMKilled), but the holder called alive since: one of the two is wrong. "+
		"The lock does not count as abandoned.")
	wantWords(t, ok(t, d, "/"), "its container ended 40s ago with exit code 137 (OOMKilled), which the holder disputes")
	lock, _ := fetch[lockjson.Document](t, d, "/api/v1/lock?name="+abandoned)
	if *lock.State != "alerting" || lock.Death == nil || !lock.Death.Disputed || lock.Death.Believed {
		t.Errorf("%v, %+v", *lock.State, lock.Death)
	}
}

func TestTheAPISaysWhatWitnessesSay(t *testing.T) {
	d := mourning().dashboard(t, unlocksAbandoned)
	lock, _ := fetch[lockjson.Document](t, d, "/api/v1/lock?name="+abandoned)
	if lock.Death == nil || !lock.Death.Believed || *lock.Death.ExitCode != 137 || *lock.Death.EndedIn != -40 ||
		*lock.Death.UnlockIn != 8 || *lock.State != "abandoned" {
		t.Errorf("%+v", lock.Death)
	}
	lock, _ = fetch[lockjson.Document](t, d, "/api/v1/lock?name="+quiet)
	if lock.Suspicion == nil || lock.Death != nil || *lock.State != "held" {
		t.Errorf("%+v", lock)
	}
}

func TestAnAbandonedHoldIsInTheHistoryWithItsCause(t *testing.T) {
	s := busy()
	s.endings["x"] = &metadata.Ending{Lock: "gone", UUID: uuid("gone"), Token: 5, Ended: metadata.EndedAbandoned,
		EndedAt: metadata.Time{Time: s.now.Add(-time.Minute)}, By: "eu-1",
		Why: "its container ended 40s ago with exit code 137 (OOMKilled), says the witness eu-1"}
	d := s.dashboard(t)
	for _, path := range []string{"/history", "/history?q=ended:abandoned"} {
		page := ok(t, d, path)
		wantWords(t, page, "etcd keeps for days how unlockers and operators ended holds.",
			"by eu-1: its container ended 40s ago with exit code 137 (OOMKilled)")
		if !strings.Contains(page, `<span class="badge abandoned">`) {
			t.Errorf("%s shows it like a release: %s", path,
				regexp.MustCompile(`<span class="badge.*`).FindString(page))
		}
	}
	if page := ok(t, d, "/history?q=ended:released"); strings.Contains(page, "OOMKilled") {
		t.Error("it counts as released")
	}
}

func TestTheHistoryTellsWhoAskedAndWhoGaveMoreTime(t *testing.T) {
	s := busy()
	evil := `"><script>alert(1)</script>` + "\u202e"
	e := &metadata.Ending{Lock: "gone", UUID: uuid("gone"), Token: 5, Ended: metadata.EndedForced,
		EndedAt: metadata.Time{Time: s.now.Add(-time.Minute)}, By: "bob", Why: "it hangs",
		Asked: &metadata.Request{By: "ann", Source: "cli", Reason: "the deploy waits",
			At: metadata.Time{Time: s.now.Add(-3 * time.Minute)}},
		Extended: &metadata.Extension{By: "eve", Source: "cli", Reason: evil, Seconds: 1800,
			At: metadata.Time{Time: s.now.Add(-2 * time.Minute)}}}
	s.endings[e.UUID] = e
	d := s.dashboard(t)
	for _, path := range []string{"/history", "/lock?name=gone&hold=" + e.UUID} {
		page := ok(t, d, path)
		wantWords(t, page, `asked by ann 3m ago: "the deploy waits"`, "eve gave 30m more 2m ago:")
		if strings.Contains(page, "<script>alert") || strings.Contains(page, "\u202e") ||
			strings.Contains(page, "no answer yet") {
			t.Errorf("%s shows %s", path, words(page))
		}
	}
	data, _ := fetch[struct{ Holds []lockjson.Ending }](t, d, "/api/v1/history")
	got := data.Holds[0]
	if got.Asked == nil || *got.Asked.By != "ann" || got.Asked.Answered != nil || got.Extended == nil ||
		*got.Extended.Seconds != 1800 || *got.Extended.Reason != evil {
		t.Errorf("%+v, %+v", got.Asked, got.Extended)
	}
	e.Ended = metadata.EndedYielded // why tells who asked
	e.Why = "asked by ann: the deploy waits"
	if n := strings.Count(ok(t, s.dashboard(t), "/history"), "asked by ann"); n != 1 {
		t.Errorf("it is said %d times who asked", n)
	}
}
