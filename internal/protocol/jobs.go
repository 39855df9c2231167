package protocol

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// MaxDataBytes is the length of the longest text that a task carries for its workers.
const MaxDataBytes = 64 << 10

// StateInProgress is the state of a task that a worker holds, or held when it died.
const StateInProgress = "in_progress"

// Task is the value of a task's key. A task in progress has the lock [TaskLock]; if nobody holds it, its worker is
// gone.
type Task struct {
	State     string        `json:"state"`
	From      string        `json:"from,omitempty"` // the state that the last worker took it from
	Attempts  int           `json:"attempts"`       // how often it has been taken without success
	Data      string        `json:"data,omitempty"` // the caller's
	Note      string        `json:"note,omitempty"` // what the last worker reported
	By        string        `json:"by,omitempty"`   // the worker or operator that wrote this
	AddedAt   metadata.Time `json:"added_at"`
	ChangedAt metadata.Time `json:"changed_at"` // when the state changed
}

// TaskLock returns the name of the lock of the task's worker.
func TaskLock(set, task string) string { return set + "/" + task }

// CheckTask returns an error unless the names of a set and a task are valid. The name of a set must not contain "/", so
// that no two tasks share a lock; that of a task may.
func CheckTask(set, task string) error {
	switch {
	case set == "":
		return errors.New("the name of the set of tasks is empty")
	case strings.Contains(set, "/"):
		return fmt.Errorf("the set of tasks %q has a slash in its name", text.Clip(set, maxQuoted))
	case task == "":
		return errors.New("the name of the task is empty")
	}
	return metadata.CheckName(TaskLock(set, task))
}

// Period is the value of a period's key: the last period in which a job ran.
type Period struct {
	Start time.Time
	Words string // who took it and when; shown, never interpreted
}

// FormatPeriod returns the value of a period's key. Byte order is the order of periods.
func FormatPeriod(p Period) string {
	return metadata.FormatTime(p.Start) + " " + text.Cut(strings.ToValidUTF8(p.Words, "�"), metadata.MaxTextBytes)
}

// ParsePeriod reads the value of a period's key.
func ParsePeriod(value string) (Period, error) {
	start, words, _ := strings.Cut(value, " ")
	at, err := metadata.ParseTime(start)
	return Period{Start: at, Words: words}, err
}
