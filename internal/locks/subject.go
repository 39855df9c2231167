package locks

import (
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// About is a kind of things that can be searched.
type About uint8

const (
	AboutLocks     About = iota // held, or waited for
	AboutEndings                // of holds
	AboutIntervals              // of the timeline
	AboutActions                // of operators
	AboutDelays
	AboutNames // of tasks and of jobs
)

// String names the things.
func (a About) String() string {
	return [...]string{"locks", "ended holds", "the timeline", "actions", "lock delays", "names"}[a]
}

// has reports whether such things have what the key is about.
func (a About) has(key string) bool {
	switch a {
	case AboutLocks:
		return key != "ended"
	case AboutEndings:
		return key != "wait" && key != "waiters"
	case AboutIntervals:
		return slices.Contains([]string{"name", "owner", "host", "pid", "hold", "taken", "held"}, key)
	case AboutActions, AboutDelays:
		return slices.Contains([]string{"name", "owner", "host", "purpose", "hold"}, key)
	}
	return key == "name"
}

// Subject is what a query looks at. Each kind of things fills in what it has; a field that is zero never matches.
type Subject struct {
	Name, Owner, Host, Purpose string
	PID                        int64
	Hold                       string // its uuid
	Labels                     map[string]any
	States                     [3]metadata.State // as judged, as shown (an expiring lock is held), inconsistent
	Taken                      time.Time
	Alerted                    time.Time // since when it has needed a person
	Alert, Unlock              time.Time // deadlines
	Waiters                    int
	Waits                      time.Time // since when the longest one has waited
	Acknowledged               *metadata.Acknowledgement
	Ended                      string // how, in a word
	HadAlerted                 bool   // before it ended
}

// Subject returns the row for a query.
func (r *Row) Subject() Subject {
	s := Subject{Name: r.Name, Owner: r.Owner, Host: r.Hostname, Purpose: r.Purpose, PID: r.PID, Hold: r.UUID,
		Labels: r.Attributes, States: [3]metadata.State{r.State, r.Display}, Taken: r.LockedAt,
		Alerted: r.attentionSince(), Alert: r.DueAlert, Unlock: r.DueUnlock(), Waiters: r.Waiters, Waits: r.Longest,
		Acknowledged: r.Acknowledged}
	if r.Inconsistent != "" {
		s.States[2] = metadata.StateMalformed
	}
	return s
}

// SubjectOfEnding returns a hold that has ended, for a query. Its state is the one at its end, by its own deadlines:
// what unlockers had decided by then is not known.
func SubjectOfEnding(e *metadata.Ending) Subject {
	r := metadata.Record{Name: e.Name, UUID: e.UUID, Token: e.Token, Identity: e.Identity, Attributes: e.Attributes,
		LockedAt: e.LockedAt.Time, AlertAt: e.AlertAt.Time, AutoUnlockAt: e.AutoUnlockAt.Time,
		Acknowledgement: e.Acknowledgement}
	s := NewRow(&r, &diagnosis.CombinedPolicy{}, staleness.Moment{Wall: e.EndedAt.Time}, &WaitSummary{}, "").Subject()
	s.Ended = EndedWord(e.Cause)
	s.HadAlerted = HadAlerted(e)
	return s
}

// searchedName returns the part of the name that patterns match: a key that was written by hand can be longer.
func (s *Subject) searchedName() string { return s.Name[:min(len(s.Name), maxSearchedName)] }

// hasWord reports whether a word, in lower case and without quotes, is part of a text that lists show.
func (s *Subject) hasWord(word string) bool {
	for _, text := range [...]string{s.Name, s.Owner, s.Host, s.Purpose} {
		if strings.Contains(unquote(strings.ToLower(text)), word) {
			return true
		}
	}
	return false
}

func (s *Subject) acknowledgedBy() string {
	if s.Acknowledged == nil {
		return ""
	}
	return s.Acknowledged.By
}

// duration returns the duration that the key is compared with.
func (s *Subject) duration(key string, now time.Time) (d time.Duration, known bool) {
	switch key {
	case "held":
		return now.Sub(s.Taken), !s.Taken.IsZero()
	case "alert":
		return s.Alert.Sub(now), !s.Alert.IsZero()
	case "unlock":
		return s.Unlock.Sub(now), !s.Unlock.IsZero()
	case "expired":
		return now.Sub(s.Unlock), s.States[0] == metadata.StateExpired
	default: // wait
		return now.Sub(s.Waits), !s.Waits.IsZero()
	}
}
