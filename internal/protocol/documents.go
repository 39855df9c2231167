package protocol

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Action is an operator's action, as stored in an audit key.
type Action struct {
	ID        string        `json:"id"`
	At        metadata.Time `json:"at"`
	Actor     string        `json:"actor"`
	Source    string        `json:"source"` // where the identity came from: cli, basic, mtls, header, program
	Client    string        `json:"client,omitempty"`
	UserAgent string        `json:"user_agent,omitempty"` // the person's program, as it identifies itself
	Verb      Verb          `json:"action"`
	Lock      string        `json:"lock"`
	UUID      string        `json:"uuid"`
	Token     int64         `json:"token"`
	Revision  int64         `json:"revision"` // the record's revision that the person saw
	Holder    string        `json:"holder"`   // one line
	Reason    string        `json:"reason"`
	Ticket    string        `json:"ticket,omitempty"`
	Result    string        `json:"result"` // success, conflict, denied, error
	// Seconds is how much time a VerbExtend gave, or how long a VerbAcknowledge lasts.
	Seconds int64 `json:"seconds,omitempty"`
}

// document is a type that is stored as one JSON object in one key.
type document interface {
	metadata.Ticket | metadata.Ending | metadata.Presence | metadata.Statement | metadata.FinishRequest |
		metadata.MoreTime | metadata.Acknowledgement | metadata.LockDelay | Action | Task
}

// Marshal encodes a document as JSON. Text that is not UTF-8 is written with replacement characters, so that a hostile
// record cannot prevent the recording of its own ending.
func Marshal[T document](value T) string {
	b, err := json.Marshal(value)
	if err != nil {
		return "{}" // only for attributes that Decode never yields
	}
	return string(b)
}

// Unmarshal decodes a document from JSON. A member that cannot be read is an error.
func Unmarshal[T document](value []byte) (T, error) {
	var decoded T
	err := json.Unmarshal(value, &decoded)
	return decoded, err
}

// DecodeStatement decodes a witness's statement about the hold with this uuid, which is the end of its key. It returns
// nil if the statement is too long, cannot be read, or names another hold.
func DecodeStatement(uuid string, kv KV) *metadata.Statement {
	if len(kv.Value) > lockrecord.MaxStatementBytes {
		return nil
	}
	s, err := Unmarshal[metadata.Statement](kv.Value)
	if err != nil || s.UUID != uuid {
		return nil
	}
	s.Revision = kv.ModRevision
	cutTexts(&s.Cause, &s.Reason, &s.Signal, &s.Detail, &s.Witness, &s.By)
	return &s
}

// DecodeTicket decodes a ticket. One that cannot be read still has its position in the queue.
func DecodeTicket(key Key, kv KV) metadata.Waiter {
	w := metadata.Waiter{Name: key.Lock, ID: key.ID, Revision: kv.CreateRevision}
	if len(kv.Value) > lockrecord.MaxRecordBytes { // valid ones are never that large, and decoding costs time
		return w
	}
	if t, err := Unmarshal[metadata.Ticket](kv.Value); err == nil {
		w.Ticket = t
		cutTexts(&w.UUID, &w.Under, &w.Owner, &w.Hostname, &w.Purpose)
	}
	return w
}

// cutTexts cuts texts from outside to the length that the protocol allows.
func cutTexts(texts ...*string) {
	for _, s := range texts {
		*s = strings.Clone(text.Cut(*s, metadata.MaxTextBytes)) // without the rest of it
	}
}

// RecordAssembler groups keys, which it gets in key order, into records, so that only one lock with its backtrace is in
// memory at a time.
type RecordAssembler struct {
	// Each is called for every record, with the arguments of [lockrecord.Decode].
	Each func(lock string, fields []metadata.Field, foreign []string)

	lock    string
	fields  []metadata.Field
	foreign []string
}

// Add adds the next key. Keys outside the range of any record are left out.
func (g *RecordAssembler) Add(key Key, kv KV) {
	if key.Lock == "" || key.Kind != KindField && key.Kind != KindForeign {
		return
	}
	if key.Lock != g.lock {
		g.Flush()
		g.lock = key.Lock
	}
	if key.Kind == KindForeign {
		g.foreign = append(g.foreign, kv.Key)
		return
	}
	g.fields = append(g.fields, kv.Field(key))
}

// Flush passes the current record to Each: call it after the last key. Foreign keys alone are not a record.
func (g *RecordAssembler) Flush() {
	fields, foreign := g.fields, g.foreign
	g.fields = nil
	g.foreign = nil
	if len(fields) > 0 {
		g.Each(g.lock, fields, foreign)
	}
}

// ParseMisplaced parses a key that looks like a field of a lock's record, but in a segment that [EncodeName] never
// writes: its client believes that it holds a lock. place is the key without the field and its "/", such as
// "/mutexes/100%".
func (l Layout) ParseMisplaced(key string) (place, field string, ok bool) {
	rest, ok := strings.CutPrefix(key, l.prefix)
	if !ok {
		return "", "", false
	}
	segment, field, ok := strings.Cut(rest, "/")
	if !ok || !lockrecord.IsFieldName(field) || strings.HasPrefix(segment, ".") {
		return "", "", false
	}
	if _, err := DecodeName(segment); err == nil {
		return "", "", false
	}
	return key[:len(key)-len(field)-1], field, true
}

// MarkMisplaced marks a record that was read at a place that [Layout.ParseMisplaced] returned. Its name is the place.
func (l Layout) MarkMisplaced(r *metadata.Record) {
	r.Misplaced = true
	segment := strings.TrimPrefix(r.Name, l.prefix)
	r.Problems = append([]metadata.Problem{{Field: "name", Kind: metadata.ProblemBadName,
		Text: fmt.Sprintf("%q is no lock name as the protocol writes it: "+
			"other clients do not see this lock, and nothing removes it", text.Clip(segment, maxQuotedBytes))}},
		r.Problems...)
}

const (
	// maxPresenceBytes is how long a presence record may be; longer ones are not read.
	maxPresenceBytes = 128 << 10
	maxHeldBack      = 16
)

// DecodePresence decodes the presence record of an unlocker by its id, which is the end of its key. It returns nil if
// the record is too long, cannot be read, or lacks the time of writing: no unlocker wrote it. Nor did one write a
// record without a lease, which could outlive it for years.
func DecodePresence(id string, value []byte, lease int64) *metadata.Presence {
	if len(value) > maxPresenceBytes || lease == 0 {
		return nil
	}
	p, err := lockrecord.UnmarshalPresence(value)
	if err != nil || p.Now.IsZero() {
		return nil
	}
	p.ID = id // the key identifies the unlocker
	cutTexts(&p.ID, &p.Hostname, &p.Version, &p.Mode, &p.LastGapCause, &p.WitnessProblem)
	p.HeldBack = p.HeldBack[:min(len(p.HeldBack), maxHeldBack)]
	for i := range p.HeldBack {
		cutTexts(&p.HeldBack[i])
	}
	return &p
}

// Freshness is how current a view of the locks is.
type Freshness struct {
	// Synced reports whether the view matches etcd: it was listed, the watch follows, and etcd was heard from recently.
	Synced bool
	// Revision is the revision that the view shows.
	Revision int64
	// FirstRevision is the revision of the first list; 0 before it.
	FirstRevision int64
	// HighestRevision is the highest revision ever seen. If Revision is lower, etcd was restored from an older state,
	// and fencing tokens may repeat.
	HighestRevision  int64
	HeardAt          time.Time     // when etcd was last heard from; zero = never
	ProgressInterval time.Duration // how often a healthy etcd gives a sign of life; 0 = its silence means nothing
	SyncedChangedAt  time.Time     // when Synced last changed
	Class            string        // why it is not synced, in a word or two that everyone may see
	Cause            string        // the same as a sentence, which may name addresses; empty if it is synced
}

// endedPart returns the part that ended, according to the cause of a statement; empty for an unknown cause.
func endedPart(cause string) string {
	switch cause {
	case metadata.CauseProcessEnded, metadata.CauseCommandLives:
		return "its process ended"
	case metadata.CauseRebooted:
		return "its machine was rebooted"
	case metadata.CauseContainerEnded:
		return "its container ended"
	case metadata.CauseContainerRestarted:
		return "its container ended and was restarted"
	case metadata.CausePodEnded:
		return "its pod ended"
	case metadata.CausePodDeleted:
		return "its pod was deleted"
	case metadata.CausePodNeverSeen:
		return "its pod has not been seen"
	case metadata.CauseNodeNotReady:
		return "the node of its pod fell silent"
	}
	return ""
}

// WhatEnded returns what ended, "its container ended", and how, "with exit code 137 (OOMKilled)", empty if unknown. A
// caller may put the time between the two. Text from outside is made visible.
func WhatEnded(s *metadata.Statement) (what, how string) {
	what = cmp.Or(endedPart(s.Cause), text.Visible(text.Clip(s.Cause, maxWordBytes)))
	switch {
	case s.Signal != "":
		how = "by " + text.Visible(text.Clip(s.Signal, maxWordBytes))
	case s.ExitCode != nil:
		how = fmt.Sprintf("with exit code %d", *s.ExitCode)
	}
	if s.Detail == "" {
		return what, how
	}
	if how != "" {
		how += " "
	}
	return what, how + "(" + text.Visible(text.Clip(s.Detail, maxWordBytes)) + ")"
}

// maxWordBytes is the maximum length of a witness's word in a sentence.
const maxWordBytes = 100

// EndedAt returns when the holder ended, by the witness's clock; if the witness does not know, when it wrote the
// statement.
func EndedAt(s *metadata.Statement) time.Time {
	if s.EndedAt.IsZero() {
		return s.At.Time
	}
	return s.EndedAt.Time
}

// DescribeStatement returns a statement as one sentence: "its container ended 40s ago with exit code 137 (OOMKilled)".
func DescribeStatement(s *metadata.Statement, now time.Time) string {
	return describeStatement(s, func(at time.Time) string { return text.Duration(now.Sub(at)) + " ago" })
}

// DescribeStatementUTC is [DescribeStatement] with the time itself, for a sentence that is stored: "its container ended
// at 2026-11-21T03:12:01Z with exit code 137 (OOMKilled)".
func DescribeStatementUTC(s *metadata.Statement) string {
	return describeStatement(s, func(at time.Time) string { return "at " + at.UTC().Format(time.RFC3339) })
}

func describeStatement(s *metadata.Statement, when func(time.Time) string) string {
	sentence, how := WhatEnded(s)
	if at := EndedAt(s); !at.IsZero() {
		sentence += " " + when(at)
	}
	if how != "" {
		sentence += " " + how
	}
	return sentence
}

// MaxDataBytes is the length of the longest text that a task carries for its workers.
const MaxDataBytes = 64 << 10

// StateInProgress is the state of a task that a worker holds, or held when it died.
const StateInProgress = "in_progress"

// Task is a task of a set, as stored in its key. A task in progress has the lock [TaskLock]; if nobody holds it, its
// worker is gone.
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
		return fmt.Errorf("the set of tasks %q has a slash in its name", text.Clip(set, maxQuotedBytes))
	case task == "":
		return errors.New("the name of the task is empty")
	}
	return metadata.CheckName(TaskLock(set, task))
}

// Period is the last period in which a job ran, as stored in a period's key.
type Period struct {
	Start time.Time
	Note  string // who took it and when; shown, never interpreted
}

// FormatPeriod returns the value of a period's key. Byte order is the order of periods.
func FormatPeriod(p Period) string {
	return metadata.FormatTime(p.Start) + " " + text.Cut(strings.ToValidUTF8(p.Note, "�"), metadata.MaxTextBytes)
}

// ParsePeriod decodes the value of a period's key.
func ParsePeriod(value string) (Period, error) {
	start, note, _ := strings.Cut(value, " ")
	at, err := metadata.ParseTime(start)
	return Period{Start: at, Note: note}, err
}

// Environment variables of a command that runs under holds.
const (
	EnvUUID  = "MUTEX_UUID"  // of the innermost hold
	EnvUnder = "MUTEX_UNDER" // of all holds, separated by blanks
)

const maxUnder = 16

// Under returns the uuids of the holds under which a process with this environment works, and of these holds, as a
// ticket has them.
func Under(getenv func(string) string, holds ...string) string {
	var under []string
	for _, uuid := range slices.Concat(strings.Fields(getenv(EnvUnder)), []string{getenv(EnvUUID)}, holds) {
		if len(under) < maxUnder && metadata.IsUUID(uuid) && !slices.Contains(under, uuid) {
			under = append(under, uuid)
		}
	}
	return strings.Join(under, " ")
}
