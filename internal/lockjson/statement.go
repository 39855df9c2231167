package lockjson

import (
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Process identifies the holder's process.
type Process struct {
	BootID       *string `json:"boot_id"`
	ProcessStart *int64  `json:"process_start"`
	PIDNamespace *int64  `json:"pid_namespace"`
	CgroupID     *int64  `json:"cgroup_id"`
	PodNamespace *string `json:"pod_namespace"`
	PodName      *string `json:"pod_name"`
	PodUID       *string `json:"pod_uid"`
	Container    *string `json:"container"`
	Detached     bool    `json:"detached"`
}

func newProcess(p *metadata.Process) *Process {
	if p == nil {
		return nil
	}
	return &Process{
		BootID: Known(p.BootID), ProcessStart: Known(p.Start), PIDNamespace: Known(p.PIDNamespace),
		CgroupID: Known(p.CgroupID), PodNamespace: Known(p.PodNamespace), PodName: Known(p.PodName),
		PodUID: Known(p.PodUID), Container: Known(p.Container), Detached: p.Detached,
	}
}

// Statement is what a witness says of the holder.
type Statement struct {
	Cause    *string  `json:"cause"`
	How      *string  `json:"how"`
	EndedAt  *string  `json:"ended_at"`
	EndedIn  *float64 `json:"ended_at_in_seconds"`
	ExitCode *int     `json:"exit_code"`
	Signal   *string  `json:"signal"`
	Detail   *string  `json:"detail"`
	Witness  *string  `json:"witness"`
	By       *string  `json:"by"`
	At       *string  `json:"at"`
	In       *float64 `json:"at_in_seconds"`
	Believed bool     `json:"believed"`
	Disputed bool     `json:"disputed"`
	UnlockAt *string  `json:"unlock_at"`
	UnlockIn *float64 `json:"unlock_at_in_seconds"`
}

func newStatement(s *metadata.Statement, now time.Time) *Statement {
	if s == nil {
		return nil
	}
	j := &Statement{Cause: Known(s.Cause), How: Known(s.How), ExitCode: s.ExitCode, Signal: Known(s.Signal),
		Detail: Known(s.Detail), Witness: Known(s.Witness), By: Known(s.By)}
	j.EndedAt, j.EndedIn = Instant(s.EndedAt.Time, now)
	j.At, j.In = Instant(s.At.Time, now)
	return j
}

// state adds what witnesses say.
func (l *Lock) state(r *metadata.Record, v staleness.Verdict, now time.Time) {
	l.Suspicion = newStatement(r.Suspicion, now)
	if l.Death = newStatement(r.Death, now); l.Death != nil {
		l.Death.Believed = r.Proven()
		l.Death.Disputed = r.Disputed()
		l.Death.UnlockAt, l.Death.UnlockIn = Instant(v.RemoveAt, now)
	}
}

// ProcessShape describes [Process].
func ProcessShape() Shape {
	return Shape{"A process", Process{}, []Line{
		{"boot_id, process_start, pid_namespace", "the machine's boot, and which of its processes it is"},
		{"cgroup_id", "the cgroup of its command, which may live longer than the process"},
		{"pod_namespace, pod_name, pod_uid, container", "in Kubernetes"},
		{"detached", "whether the work outlives the process, whose end then proves nothing"},
	}}
}

// StatementShape describes [Statement].
func StatementShape() Shape {
	return Shape{"A statement", Statement{}, []Line{
		{"cause, how", "why the witness says so: a word of the protocol, and a sentence"},
		{"ended_at", "when the holder ended, by the witness's clock"},
		{"exit_code, signal, detail", "how it ended, where known: 137, SIGKILL, OOMKilled"},
		{"witness, by", "host or kubernetes, and which instance"},
		{"at", "when the witness wrote this"},
		{"believed", "whether the holder counts as dead for it"},
		{"disputed", "whether the holder called alive since"},
		{"unlock_at", "when unlockers remove the lock for it; null when they do not, or when unknown"},
	}}
}
