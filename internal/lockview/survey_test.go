package lockview_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// surveyed is what a program learns about all locks.
type surveyed struct {
	states map[staleness.State]int
	off    int // whose holders' clocks are off
	oldest time.Time
}

func judge(survey staleness.Survey, p staleness.Policy, now staleness.Moment) (s surveyed, judged int) {
	s = surveyed{states: map[staleness.State]int{staleness.Held: survey.Idle}, oldest: survey.Oldest}
	for r := range survey.DueSoon {
		v := staleness.Judge(r, p, now)
		s.states[v.State]++
		if v.ClockOff != 0 {
			s.off++
		}
		if !r.LockedAt.IsZero() && (s.oldest.IsZero() || r.LockedAt.Before(s.oldest)) {
			s.oldest = r.LockedAt
		}
		judged++
	}
	return s, judged
}

func TestSurveyMissesNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(3, 4))
		w := newWorld()
		v := run(t, w.source(), lockview.Options{})
		policy := staleness.DefaultPolicy()
		ahead := time.Duration(0) // of the wall clock, which jumps
		moment := func() staleness.Moment {
			return staleness.Moment{Wall: time.Now().Add(ahead).UTC(), Mono: v.Clock()}
		}
		take := func(name string) {
			w.do(removeAll(layout.Record(name)))
			w.do(lock(t, name, uuid(random.IntN(1000)), func(d *metadata.Draft) {
				now := moment().Wall
				d.LockedAt = now.Add(time.Duration(random.IntN(80)-30) * time.Second)
				if random.IntN(10) == 0 {
					d.LockedAt = now.Add(-time.Hour)
				}
				d.AlertAt = now.Add(time.Duration(random.IntN(40)) * time.Minute)
				d.AutoUnlockAt = d.AlertAt.Add(time.Hour)
			})...)
		}
		for i := range 10 {
			take(fmt.Sprint("lock-", i))
		}
		leftOut := 0
		for i := range 1500 {
			name := fmt.Sprint("lock-", random.IntN(12))
			switch random.IntN(8) {
			case 0:
				w.do(removeAll(layout.Record(name)))
			case 1, 2:
				take(name)
			case 3:
				w.do(put(layout.Field(name, metadata.FieldAutoUnlockAt), fmt.Sprint(time.Now().Add(time.Hour).Unix())))
			case 4:
				time.Sleep(time.Duration(random.IntN(60)) * time.Second)
				take(name) // or the view would have heard nothing for long
			case 5:
				w.do(put(fmt.Sprintf("/mutexes/%d%%/uuid", random.IntN(3)), uuid(7))) // a misplaced record
			}
			switch random.IntN(100) {
			case 0:
				policy.ClockSkew = time.Duration(random.IntN(3)) * 20 * time.Second
			case 1:
				ahead += time.Duration(random.IntN(3)-1) * 5 * time.Minute
			case 2:
				w.cut() // so that it lists again
			}
			settle(t, v, w)
			now := moment()
			for _, c := range []struct {
				what   string
				survey staleness.Survey
				all    staleness.Survey
			}{
				{"held", v.Survey(policy, now), staleness.Survey{DueSoon: v.All()}},
				{"shown", v.SurveyShown(policy, now), staleness.Survey{DueSoon: slices.Values(v.Shown())}},
			} {
				got, judged := judge(c.survey, policy, now)
				want, all := judge(c.all, policy, now)
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("turn %d, %s: %v, want %v", i, c.what, got, want)
				}
				leftOut += all - judged
			}
		}
		if leftOut < 1000 {
			t.Errorf("only %d locks were left out: nothing was tested", leftOut)
		}
	})
}
