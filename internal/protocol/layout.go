// Package protocol is the wire format of the lock protocol around the record: where every key lies, the documents below
// the dotted areas, and how long each stays. Package metadata defines the record itself.
//
// [Layout] is the only place where keys are built and parsed.
//
// The package is pure: no clock, no I/O, no etcd.
package protocol

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// DefaultPrefix is the prefix below which everything lies unless configured otherwise.
const DefaultPrefix = "/mutexes/"

// The areas below the prefix that are not lock records.
const (
	areaQueue      = ".queue/"
	areaCancelled  = ".cancelled/"
	areaHistory    = ".history/"
	areaUnlockers  = ".unlockers/"
	areaAudit      = ".audit/"
	areaPeriods    = ".periods/"
	areaTasks      = ".tasks/"
	areaDeaths     = ".deaths/"
	areaSuspicions = ".suspicions/"
	areaDelays     = ".delays/"
)

// tailName is the last part of a tail's key. No ticket has this name.
const tailName = ".tail"

// Layout builds and parses the keys below one prefix. The zero Layout is not usable: see [NewLayout].
type Layout struct{ prefix string }

// NewLayout returns the layout below prefix, and adds a missing final "/". It refuses an empty prefix, below which
// there would be more than the locks, and one that is not printable UTF-8.
func NewLayout(prefix string) (Layout, error) {
	switch {
	case strings.Trim(prefix, "/") == "":
		return Layout{}, errors.New("the lock prefix is empty")
	case !utf8.ValidString(prefix) || strings.ContainsFunc(prefix, unicode.IsControl):
		return Layout{}, fmt.Errorf("the lock prefix %q is not printable UTF-8", prefix)
	}
	return Layout{prefix: strings.TrimSuffix(prefix, "/") + "/"}, nil
}

// DefaultLayout returns the layout below [DefaultPrefix].
func DefaultLayout() Layout { return Layout{prefix: DefaultPrefix} }

// Prefix returns the prefix with its final "/".
func (l Layout) Prefix() string { return l.prefix }

// Record returns the prefix of all keys of the lock's record. With [End] it is the range of exactly this record.
func (l Layout) Record(lock string) string { return l.prefix + EncodeName(lock) + "/" }

// Field returns the key of one field of the lock's record.
func (l Layout) Field(lock, field string) string { return l.Record(lock) + field }

// Queue returns the prefix of the tickets of the lock.
func (l Layout) Queue(lock string) string { return l.prefix + areaQueue + EncodeName(lock) + "/" }

// Ticket returns the key of one waiter.
func (l Layout) Ticket(lock, ticket string) string { return l.Queue(lock) + ticket }

// Tail returns the key that names the newest ticket of the lock's queue.
func (l Layout) Tail(lock string) string { return l.Queue(lock) + tailName }

// Cancelled returns the key of the tombstone that prevents a late commit of the acquisition with this uuid.
func (l Layout) Cancelled(uuid string) string { return l.prefix + areaCancelled + uuid }

// History returns the key of the ending of the hold with this uuid.
func (l Layout) History(uuid string) string { return l.prefix + areaHistory + uuid }

// Unlocker returns the key of the presence record of one running unlocker.
func (l Layout) Unlocker(instance string) string { return l.prefix + areaUnlockers + instance }

// Audit returns the key of one operator's action. These keys sort by time.
func (l Layout) Audit(at time.Time, id string) string {
	return l.prefix + areaAudit + metadata.FormatTime(at) + "-" + id
}

// Period returns the key of the last period in which the job under this lock ran.
func (l Layout) Period(lock string) string { return l.prefix + areaPeriods + EncodeName(lock) }

// Tasks returns the prefix of the tasks of one set.
func (l Layout) Tasks(set string) string { return l.prefix + areaTasks + EncodeName(set) + "/" }

// Death returns the key of a witness's proof that the holder of the hold with this uuid has ended.
func (l Layout) Death(uuid string) string { return l.prefix + areaDeaths + uuid }

// Suspicion returns the key of a witness's suspicion that the holder has ended.
func (l Layout) Suspicion(uuid string) string { return l.prefix + areaSuspicions + uuid }

// Delay returns the key of the lock delay after a hold of the lock, or of one share, that was ended.
func (l Layout) Delay(lock string) string { return l.prefix + areaDelays + EncodeName(lock) }

// ShareDelays returns the half-open range of the delays of all shares of the lock. Like [Layout.Shares], it may have
// keys of other locks.
func (l Layout) ShareDelays(lock string) (from, end string) {
	shares := l.Delay(lock) + "#"
	return shares + "1", shares + ":"
}

// LockAndShareDelays returns the half-open range of the delays of the lock and of all its shares. It may have those of
// other locks.
func (l Layout) LockAndShareDelays(lock string) (from, end string) {
	return l.Delay(lock), l.Delay(lock) + "#:"
}

// Task returns the key of one task.
func (l Layout) Task(set, task string) string { return l.Tasks(set) + EncodeName(task) }

// TaskLocks returns the prefix of the records of the locks that workers of a set's tasks hold.
func (l Layout) TaskLocks(set string) string { return l.prefix + EncodeName(TaskLock(set, "")) }

// Shares returns the half-open range of keys with the records of all shares of the lock. Records of other locks may lie
// in it ("pool#3rd floor"), but not those of shares of another lock whose name is "pool#" and a number.
func (l Layout) Shares(lock string) (from, end string) {
	shares := l.prefix + EncodeName(lock) + "#"
	return shares + "1", shares + ":" // the byte after 9
}

// UnlistedAreas returns the areas, as prefixes in key order, that have neither holders nor waiters. A list of the locks
// leaves them out, with whatever lies in them.
func (l Layout) UnlistedAreas() []string {
	areas := []string{areaAudit, areaCancelled, areaHistory, areaPeriods, areaTasks}
	for i, area := range areas {
		areas[i] = l.prefix + area
	}
	return areas
}

// The areas as prefixes, for reading all keys of one kind.
func (l Layout) Queues() string     { return l.prefix + areaQueue }
func (l Layout) Histories() string  { return l.prefix + areaHistory }
func (l Layout) Unlockers() string  { return l.prefix + areaUnlockers }
func (l Layout) Audits() string     { return l.prefix + areaAudit }
func (l Layout) Periods() string    { return l.prefix + areaPeriods }
func (l Layout) AllTasks() string   { return l.prefix + areaTasks }
func (l Layout) Deaths() string     { return l.prefix + areaDeaths }
func (l Layout) Suspicions() string { return l.prefix + areaSuspicions }
func (l Layout) Delays() string     { return l.prefix + areaDelays }

// Range is the keys from From up to, but not including, To.
type Range struct{ From, To string }

// Records returns the ranges that contain the records of all locks whose names begin with prefix, and no other area.
func (l Layout) Records(prefix string) []Range {
	if prefix == "" {
		return []Range{{l.prefix, l.prefix + "."}, {l.prefix + "/", End(l.prefix)}}
	}
	from := l.prefix + EncodeName(prefix)
	return []Range{{from, End(from)}}
}

// End returns the first key after all keys with this prefix: the end of a half-open range.
func End(prefix string) string {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < 0xff {
			b[i]++
			return string(b[:i+1])
		}
	}
	return "\x00"
}

// Kind is the purpose of a key below the prefix.
type Kind string

// The kinds of keys.
const (
	KindField     Kind = "field"     // a field of a lock record
	KindTicket    Kind = "ticket"    // a waiter
	KindTail      Kind = "tail"      // the end of a queue
	KindCancelled Kind = "cancelled" // an attempt that was given up
	KindHistory   Kind = "history"   // an ending
	KindUnlocker  Kind = "unlocker"  // a presence record
	KindAudit     Kind = "audit"     // an operator's action
	KindPeriod    Kind = "period"    // the last period in which a job ran
	KindTask      Kind = "task"      // a task and its state
	KindDeath     Kind = "death"     // a witness's proof that a holder has ended
	KindSuspicion Kind = "suspicion" // a witness's suspicion that a holder has ended
	KindDelay     Kind = "delay"     // a lock delay
	KindForeign   Kind = "foreign"   // not of this protocol
)

// Key is a parsed key.
type Key struct {
	Kind Kind
	// Lock is the lock's name: of fields, of tickets and tails, of periods, of tasks, of delays, and of a foreign key
	// that lies inside the range of a lock's record.
	Lock string
	// ID is the field's name, the ticket, the uuid, the instance, the audit entry's time and id, or the task's name
	// without its set; empty for a tail, a period and a delay.
	ID string
}

// Parse parses a key. A key that is not of this protocol is KindForeign.
func (l Layout) Parse(key string) Key {
	rest, ok := strings.CutPrefix(key, l.prefix)
	if !ok {
		return Key{Kind: KindForeign}
	}
	segment, id, ok := strings.Cut(rest, "/")
	if !ok {
		return Key{Kind: KindForeign}
	}
	if strings.HasPrefix(segment, ".") {
		return parseArea(rest[:len(segment)+1], id)
	}
	lock, err := DecodeName(segment)
	switch {
	case err != nil:
		return Key{Kind: KindForeign}
	case !lockrecord.IsFieldName(id):
		return Key{Kind: KindForeign, Lock: lock}
	}
	return Key{Kind: KindField, Lock: lock, ID: id}
}

func parseArea(area, id string) Key {
	switch area {
	case areaQueue:
		return parseQueue(id)
	case areaPeriods:
		return parseLockKey(KindPeriod, id)
	case areaDelays:
		return parseLockKey(KindDelay, id)
	case areaTasks:
		return parseTask(id)
	case areaCancelled:
		return parseID(KindCancelled, id)
	case areaHistory:
		return parseID(KindHistory, id)
	case areaUnlockers:
		return parseID(KindUnlocker, id)
	case areaAudit:
		return parseID(KindAudit, id)
	case areaDeaths:
		return parseID(KindDeath, id)
	case areaSuspicions:
		return parseID(KindSuspicion, id)
	}
	return Key{Kind: KindForeign}
}

func parseID(kind Kind, id string) Key {
	if id == "" || strings.Contains(id, "/") {
		return Key{Kind: KindForeign}
	}
	return Key{Kind: kind, ID: id}
}

// parseLockKey parses the key of an area whose keys are the names of locks.
func parseLockKey(kind Kind, segment string) Key {
	lock, err := DecodeName(segment)
	if err != nil {
		return Key{Kind: KindForeign}
	}
	return Key{Kind: kind, Lock: lock}
}

func parseQueue(id string) Key {
	segment, ticket, _ := strings.Cut(id, "/")
	lock, err := DecodeName(segment)
	if err != nil || ticket == "" || strings.Contains(ticket, "/") {
		return Key{Kind: KindForeign}
	}
	if ticket == tailName {
		return Key{Kind: KindTail, Lock: lock}
	}
	return Key{Kind: KindTicket, Lock: lock, ID: ticket}
}

func parseTask(id string) Key {
	first, second, _ := strings.Cut(id, "/")
	set, bad := DecodeName(first)
	task, err := DecodeName(second)
	if bad != nil || err != nil || strings.Contains(set, "/") {
		return Key{Kind: KindForeign}
	}
	return Key{Kind: KindTask, Lock: TaskLock(set, task), ID: task}
}

// KV is one key as etcd has it.
type KV struct {
	Key            string
	Value          []byte
	CreateRevision int64
	ModRevision    int64
	Version        int64 // how often the key was written since it was created; 0 = unknown
	Lease          int64 // 0 = the key stays until it is deleted
}

// IsContender reports whether the key contends for a lock of another library: its last part is its lease, in hex or,
// from node's etcd3, in decimal.
func (kv KV) IsContender() bool {
	i := strings.LastIndexByte(kv.Key, '/')
	last := kv.Key[i+1:]
	return i > 0 && kv.Lease != 0 && (last == fmt.Sprintf("%x", kv.Lease) || last == fmt.Sprint(kv.Lease))
}

// Lease is a lease as etcd last described it.
type Lease struct {
	ID      int64
	TTL     time.Duration // it was granted for
	Expires time.Time     // unless it is kept alive; not after ReadAt: it has ended
	Keys    int           // that end with it
	ReadAt  time.Time     // zero = not yet
	Why     string        // it could not be read
}

// Field converts the key and value to a field of a record; key is the parsed key.
func (kv KV) Field(key Key) metadata.Field {
	return metadata.Field{
		Name: key.ID, Value: string(kv.Value), CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision,
		Version: kv.Version,
	}
}

// Event is the change of one key. For a deletion only Key and ModRevision are set.
type Event struct {
	KV
	Deleted bool
}

// How long everything but locks stays in etcd: docs/protocol/operators.md, All keys. Locks have no lease.
const (
	// PresenceTTL is the lease of an unlocker's presence. One that has not been written for this long is stale.
	PresenceTTL = 15 * time.Second

	// TicketTTL is the lease of a waiter's ticket and of the tail that names it.
	TicketTTL = 10 * time.Second

	// CancelledTTL is the lease of the tombstone of a cancelled attempt: longer than any request can be in flight.
	// Linux gives up a connection after 15 to 18 minutes without an acknowledgement (net.ipv4.tcp_retries2), and
	// delivers what was sent if the network recovers before that; a proxy may do the same.
	CancelledTTL = time.Hour

	// HistoryRetention is how long endings are kept unless the operator says otherwise.
	HistoryRetention = 7 * 24 * time.Hour

	// StatementTTL is the lease of a witness's statement: longer than any lock waits for its removal.
	StatementTTL = 24 * time.Hour

	// AuditRetention is how long the record of an operator's action is kept.
	AuditRetention = 30 * 24 * time.Hour
)

// maxQuotedBytes is how much of outside text an error quotes.
const maxQuotedBytes = 40

// EncodeName encodes a lock name as one path segment: "%" as "%25", "/" as "%2F", a leading "." as "%2E", nothing else.
// So no lock's keys can lie inside another lock's, and no lock can reach the areas of the protocol, which begin with a
// dot.
func EncodeName(name string) string {
	segment := strings.ReplaceAll(strings.ReplaceAll(name, "%", "%25"), "/", "%2F")
	if rest, hidden := strings.CutPrefix(segment, "."); hidden {
		segment = "%2E" + rest
	}
	return segment
}

// DecodeName decodes a path segment. It fails for a segment that EncodeName never writes ("%41", "a%2fb", ""), so that
// two different keys cannot denote the same lock. The name may still be one that [metadata.CheckName] refuses.
func DecodeName(segment string) (string, error) {
	name := segment
	if rest, hidden := strings.CutPrefix(segment, "%2E"); hidden {
		name = "." + rest
	}
	name = strings.ReplaceAll(strings.ReplaceAll(name, "%2F", "/"), "%25", "%")
	if name == "" || EncodeName(name) != segment {
		return "", fmt.Errorf("%q is not an encoded lock name", text.Clip(segment, maxQuotedBytes))
	}
	return name, nil
}
