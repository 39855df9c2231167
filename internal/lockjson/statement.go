package lockjson

import (
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Process identifies the holder's process.
type Process struct {
	BootID          *string `json:"boot_id"`
	ProcessStart    *int64  `json:"process_start"`
	PIDNamespace    *int64  `json:"pid_namespace"`
	SupervisorStart *int64  `json:"supervisor_start"`
	CgroupID        *int64  `json:"cgroup_id"`
	PodNamespace    *string `json:"pod_namespace"`
	PodName         *string `json:"pod_name"`
	PodUID          *string `json:"pod_uid"`
	Container       *string `json:"container"`
	Detached        bool    `json:"detached"`
}

func newProcess(p *metadata.Process) *Process {
	if p == nil {
		return nil
	}
	return &Process{
		BootID: OrNull(p.BootID), ProcessStart: OrNull(p.Start), PIDNamespace: OrNull(p.PIDNamespace),
		SupervisorStart: OrNull(p.SupervisorStart), CgroupID: OrNull(p.CgroupID),
		PodNamespace: OrNull(p.PodNamespace), PodName: OrNull(p.PodName),
		PodUID: OrNull(p.PodUID), Container: OrNull(p.Container), Detached: p.Detached,
	}
}

// Statement is a witness's statement about the holder.
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
	j := &Statement{Cause: OrNull(s.Cause), How: OrNull(s.Reason), ExitCode: s.ExitCode, Signal: OrNull(s.Signal),
		Detail: OrNull(s.Detail), Witness: OrNull(s.Witness), By: OrNull(s.By)}
	j.EndedAt, j.EndedIn = Instant(s.EndedAt.Time, now)
	j.At, j.In = Instant(s.At.Time, now)
	return j
}

// Delay is a lock delay: clients that support delays do not take the lock. Unreadable members are null.
type Delay struct {
	Name       string   `json:"name"`
	NameBase64 string   `json:"name_base64,omitempty"`
	UUID       *string  `json:"uuid"`
	Token      *string  `json:"token"`
	Revision   *string  `json:"revision"`
	Owner      *string  `json:"owner"`
	Hostname   *string  `json:"hostname"`
	Purpose    *string  `json:"purpose"`
	Permits    *int     `json:"permits"`
	How        *string  `json:"how"`
	By         *string  `json:"by"`
	EndedAt    *string  `json:"ended_at"`
	EndedIn    *float64 `json:"ended_at_in_seconds"`
	Seconds    *int64   `json:"seconds"`
	Until      *string  `json:"until"`
	UntilIn    *float64 `json:"until_in_seconds"`
}

// NewDelay describes a lock delay.
func NewDelay(d *metadata.LockDelay, now time.Time) Delay {
	j := Delay{Name: d.Name, NameBase64: Base64(d.Name), UUID: OrNull(d.UUID), Token: Text(d.Token),
		Revision: Text(d.Revision), Owner: OrNull(d.Owner), Hostname: OrNull(d.Hostname), Purpose: OrNull(d.Purpose),
		Permits: OrNull(d.Permits), How: EndingWord(d.Cause), By: OrNull(d.By), Seconds: OrNull(d.Seconds)}
	j.EndedAt, j.EndedIn = Instant(d.At.Time, now)
	j.Until, j.UntilIn = Instant(d.Until(), now)
	return j
}

// Delays describes the first lock delays, in order.
func Delays(all []metadata.LockDelay, now time.Time) []Delay {
	all = first(all)
	list := make([]Delay, len(all))
	for i := range all {
		list[i] = NewDelay(&all[i], now)
	}
	return list
}
