package metadata

import (
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
