package metadata

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"
)

// Causes of a [Statement]. The first five prove that the holder has ended; the others are only suspicions.
const (
	CauseProcessEnded       = "process_ended"       // the kernel saw the process end, or another process has its id now
	CauseRebooted           = "rebooted"            // the machine has booted since
	CauseContainerEnded     = "container_ended"     // the kubelet reports the container terminated
	CauseContainerRestarted = "container_restarted" // the kubelet has restarted the container since the lock was taken
	CausePodEnded           = "pod_ended"           // the kubelet reports the pod succeeded or failed

	CauseCommandLives = "command_lives"  // the process has certainly ended, but what it started has not
	CausePodDeleted   = "pod_deleted"    // the pod was deleted while, as far as is known, its containers ran
	CausePodNeverSeen = "pod_never_seen" // no such pod has been seen
	CauseNodeNotReady = "node_not_ready" // the kubelet of the node is silent
)

// ProofCauses returns the causes that prove that a holder has ended.
func ProofCauses() []string {
	return []string{CauseProcessEnded, CauseRebooted, CauseContainerEnded, CauseContainerRestarted, CausePodEnded}
}

// The kinds of witnesses.
const (
	WitnessHost       = "host"       // on the holder's machine
	WitnessKubernetes = "kubernetes" // learns about the holder's pod from Kubernetes
)

// Statement is what a witness says about the holder of one hold: that it has ended, below .deaths, or that this is
// likely, below .suspicions. The first is a proof; on the second alone no lock is removed.
type Statement struct {
	Name     string `json:"lock"` // of the lock
	UUID     string `json:"uuid"`
	Token    int64  `json:"token"`
	Cause    string `json:"cause"`
	Reason   string `json:"how"`                 // a sentence
	EndedAt  Time   `json:"ended_at"`            // when the holder ended, by the witness's clock; null if unknown
	ExitCode *int   `json:"exit_code,omitempty"` // nil if unknown or if a signal ended it
	Signal   string `json:"signal,omitempty"`    // that ended it, such as SIGKILL
	Detail   string `json:"detail,omitempty"`    // the source's own word for it, such as OOMKilled
	Witness  string `json:"witness"`             // host or kubernetes
	By       string `json:"by"`                  // the witness's instance
	At       Time   `json:"at"`                  // when this was written

	// Revision is the mod revision of the statement's key, set by the reader.
	Revision int64 `json:"-"`
	// Seen is when the reader first saw this statement, on the clock of [Seen].
	Seen time.Duration `json:"-"`
}

// IsAbout reports whether the statement is about the hold in r, and not about an earlier hold or another lock.
func (s *Statement) IsAbout(r *Record) bool {
	return r.Token != 0 && r.UUID != "" && s.Name == r.Name && s.UUID == r.UUID && s.Token == r.Token
}

// IsProof reports whether the cause proves that the holder has ended.
func (s *Statement) IsProof() bool { return slices.Contains(ProofCauses(), s.Cause) }

// ProvenDead reports whether a witness proved that the holder has ended, and its work with it.
func (r *Record) ProvenDead() bool {
	outlived := r.Process != nil && r.Process.Detached // the end of the process then proves nothing
	return r.Death != nil && !r.Disputed() && !outlived
}

// Disputed reports whether the hold was extended after the statement that its holder is dead: alive was called or the
// deadline moved, either of which may leave the other unchanged. Either the statement is wrong, or the call was in
// flight when the holder ended, or an operator gave more time. The statement is then not believed.
func (r *Record) Disputed() bool {
	if r.Death == nil {
		return false
	}
	return r.DeadlineRevision > r.Death.Revision || r.Alive != nil && r.Alive.Revision > r.Death.Revision
}

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

// Identity has the owner, host and process of a holder or waiter, and its purpose. Any field may be unknown: empty or
// 0.
type Identity struct {
	Owner    string `json:"owner,omitempty"`
	Hostname string `json:"hostname,omitempty"`
	PID      int64  `json:"pid,omitempty"`
	Purpose  string `json:"purpose,omitempty"`
}

// Process identifies the process that holds a lock, in addition to its host name and process id, so that a witness can
// prove its end. A client writes what it can find out; the rest is empty or 0.
type Process struct {
	// BootID identifies the current boot of the machine: /proc/sys/kernel/random/boot_id.
	BootID string `json:"boot_id,omitempty"`
	// Start is when the process started, in clock ticks since boot: /proc/PID/stat, field 22. It is 0 if the end of the
	// process is not the end of its work: then there is SupervisorStart instead, or none.
	Start int64 `json:"process_start,omitempty"`
	// PIDNamespace is the namespace of its process id: the inode of /proc/PID/ns/pid.
	PIDNamespace int64 `json:"pid_namespace,omitempty"`
	// SupervisorStart is the same for a process whose commands, in the cgroup CgroupID, do the work. Because of its own
	// name, readers that do not know CgroupID see no proof in the end of the process.
	SupervisorStart int64 `json:"supervisor_start,omitempty"`
	// CgroupID is the cgroup in which the process runs its commands, whose end, not its own, ends the work: the inode
	// of the directory in the cgroup v2 file system.
	CgroupID int64 `json:"cgroup_id,omitempty"`

	// In Kubernetes, from the downward API.
	PodNamespace string `json:"pod_namespace,omitempty"`
	PodName      string `json:"pod_name,omitempty"`
	PodUID       string `json:"pod_uid,omitempty"`
	Container    string `json:"container,omitempty"`

	// Detached means that the work outlives the process, as with a reservation: its end proves nothing.
	Detached bool `json:"detached,omitempty"`
}
