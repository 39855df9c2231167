package metadata

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// Presence is the document that a running unlocker writes every second. It proves that etcd accepts writes, and its Now
// lets unlockers check each other's clocks.
type Presence struct {
	ID        string   `json:"id"` // of the unlocker
	Hostname  string   `json:"hostname"`
	Version   string   `json:"version"`
	StartedAt Time     `json:"started_at"`
	Now       Time     `json:"now"`      // its clock
	Revision  int64    `json:"revision"` // the highest revision of etcd that it has seen
	Mode      string   `json:"mode"`     // alert-only, auto-unlock or dry-run
	HeldBack  []string `json:"held_back,omitempty"`
	// LastGap is when the unlocker may have missed something for the last time, and LastGapCause is why. After a gap,
	// holders first get the minimum warning to extend.
	LastGap      Time   `json:"last_gap"`
	LastGapCause string `json:"last_gap_cause,omitempty"`
	// WitnessProblem is why its witness in Kubernetes does not know all pods; empty if it does, or if it has none.
	WitnessProblem string `json:"witness_problem,omitempty"`
	// RemovalPolicy is the policy that decides what it does about a stale lock; nil if it publishes none that can be
	// read.
	RemovalPolicy *RemovalPolicy `json:"sweep,omitempty"`

	// ArrivedAt is when the document arrived, by the reader's clock; zero if it was listed, so that its age is unknown.
	ArrivedAt time.Time `json:"-"`
}

// RemovalPolicy is the policy, besides its mode, by which an unlocker decides what to do about a stale lock. Zero means
// the same as for the unlocker's flag of that name.
type RemovalPolicy struct {
	ClockSkew              Seconds  `json:"clock_skew"`
	MinWarning             Seconds  `json:"min_warning"`
	DefaultAlertAfter      Seconds  `json:"default_alert_after"`
	DefaultAutoUnlockAfter Seconds  `json:"default_auto_unlock_after"`
	Abandoned              string   `json:"abandoned"` // AbandonedReport or AbandonedUnlock
	AbandonedGrace         Seconds  `json:"abandoned_grace"`
	LockDelay              Seconds  `json:"lock_delay"`
	Exclude                []string `json:"exclude"` // globs of names of locks that it never removes
}

// Values of [RemovalPolicy].Abandoned: what an unlocker does about a lock whose holder is proven dead.
const (
	AbandonedReport = "report" // nothing before its deadline
	AbandonedUnlock = "unlock" // removes it after the grace
)

// Seconds is a duration that JSON has as a number of seconds, from 0 to about 31 years.
type Seconds time.Duration

// maxDuration is the longest duration; a longer one is written as this one.
const maxDuration = Seconds(1_000_000_000 * time.Second)

// MarshalJSON implements [json.Marshaler].
func (s Seconds) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(min(s, maxDuration)).Seconds())
}

// UnmarshalJSON implements [json.Unmarshaler].
func (s *Seconds) UnmarshalJSON(text []byte) error {
	n := math.NaN()
	if err := json.Unmarshal(text, &n); err != nil {
		return err
	}
	if !(n >= 0 && n <= time.Duration(maxDuration).Seconds()) {
		return fmt.Errorf("%s is not a number of seconds from 0 to %v", text, time.Duration(maxDuration).Seconds())
	}
	*s = Seconds(math.Round(n * float64(time.Second)))
	return nil
}
