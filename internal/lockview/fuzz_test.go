package lockview_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func draft(uuid string) lockrecord.Draft {
	at := time.Unix(1_553_682_600, 250_000_000)
	return lockrecord.Draft{
		UUID:     uuid,
		Identity: metadata.Identity{Owner: "billing", Hostname: "billing-7f9c", PID: 17, Purpose: "nightly invoices"},
		Client:   "go/1.0.0",
		LockedAt: at, AlertAt: at.Add(5 * time.Minute), AutoUnlockAt: at.Add(15 * time.Minute),
		Backtrace: strings.Repeat("example.com/billing/invoice.(*Run).tenant /src/billing/invoice/run.go:118\n", 30),
	}
}

// player turns bytes into operations of well-behaved and bad clients.
type player struct {
	t     testing.TB
	bytes []byte
	w     *world
	uuids int
}

func (p *player) next(n int) int {
	if len(p.bytes) == 0 {
		return 0
	}
	b := p.bytes[0]
	p.bytes = p.bytes[1:]
	return int(b) % n
}

var (
	names  = []string{"a", "a-b", "a/b", "ab", "%", ".x", "é\x01"}
	fields = []string{
		lockrecord.FieldUUID, lockrecord.FieldAlertAt, lockrecord.FieldAutoUnlockAt, lockrecord.FieldAlive,
		lockrecord.FieldMetadata, lockrecord.FieldOwner,
		lockrecord.FieldHostname, "pid", lockrecord.FieldLockedAt, lockrecord.FieldPurpose,
		lockrecord.FieldBacktrace, "client",
		"tenant", "team", "zone",
	}
	values = []string{
		"", "1553682600", "1553682600.250", "1553682600.25", "soon", "00000000-0000-4000-8000-000000000001",
		"1553682700 half done", "1553682700 ",
		`{}`, `{"owner":"x","pid":3,"locked_at":"1553682600","tenant":41,"team":"core","deep":{"a":1},"ok":true}`, `[]`,
		"null", "\xff\xfe",
		`{"owner":7,"hostname":"h` + "\xff" + `","backtrace":"main.go:1\n","alert_at":"1"}`,
		strings.Repeat("x", 600), strings.Repeat("é", 3000), "a\xff" + strings.Repeat("y", 5000),
		strings.Repeat("1", 1100), strings.Repeat("z", 70_000),
		`{"purpose":"` + strings.Repeat("p", 3000) + `","note":` + strings.Repeat("7", 1500) + `,"list":[` +
			strings.Repeat("1,", 900) + `1]}`,
		`{"backtrace":"` + strings.Repeat("b", 17_000) + `","` + strings.Repeat("n", 2500) + `":1}`,
		`{"owner":"o","backtrace":"` + strings.Repeat("b", 700) + "\xff" + `"}`,
		crowded(60), crowded(70), crowded(300),
	}
	strangers = []string{"b/uuid", "UPPER", "x y", ""}
	outlaws   = []string{"stray", ".unknown/x", "%41/uuid", ".queue/a", ".queue/a/.tail", ".history/a/b",
		".queue/a/b/c", ".tasks/odd", layout.Period("job")[len(layout.Prefix()):],
		layout.Task("invoices", "42")[len(layout.Prefix()):]}
)

// drafts are the record variants of the client library.
var drafts = []func(*lockrecord.Draft){
	func(*lockrecord.Draft) {},
	func(d *lockrecord.Draft) {
		d.Owner = ""
		d.Hostname = ""
		d.Purpose = ""
		d.PID = 0
		d.Client = ""
		d.Backtrace = ""
	},
	func(d *lockrecord.Draft) {
		d.Attributes = map[string]any{"tenant": 41, "ok": true, "team": "core", "ratio": 1.5}
	},
	func(d *lockrecord.Draft) { // nearly as large as it may be
		d.Backtrace = strings.Repeat("main.main main.go:1\n", 1000)
		d.Attributes = map[string]any{}
		for i := range 45 {
			d.Attributes[fmt.Sprintf("k%02d", i)] = strings.Repeat("v", 970+i)
		}
	},
}

func crowded(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"k%03d":"%d"`, i, i)
	}
	return `{"owner":"many"` + b.String() + `}`
}

// turn commits one revision.
func (p *player) turn() { p.w.do(p.ops()...) }

// ops returns one to three operations for one revision, if etcd accepts them in one transaction.
func (p *player) ops() (allowed []op) {
	var ops []op
	for range 1 + p.next(3) {
		ops = append(ops, p.things()...)
	}
	for _, o := range ops { // it takes one put of a key, and none in a range that is deleted
		clash := slices.ContainsFunc(allowed, func(other op) bool {
			return o.key == other.key || other.prefix && strings.HasPrefix(o.key, other.key) || o.prefix &&
				strings.HasPrefix(other.key, o.key)
		})
		if !clash {
			allowed = append(allowed, o)
		}
	}
	return allowed
}

func (p *player) things() []op {
	name := names[p.next(len(names))]
	field := layout.Field(name, fields[p.next(len(fields))])
	value := values[p.next(len(values))]
	switch p.next(15) {
	case 0, 1:
		p.uuids++
		return lock(p.t, name, uuid(p.uuids), drafts[p.next(len(drafts))])
	case 2:
		return []op{removeAll(layout.Record(name))}
	case 3, 4:
		at := fmt.Sprintf("15536%05d", p.next(256)*300) + []string{"", "", "", ".5", ".250", " "}[p.next(6)]
		ops := []op{put(layout.Field(name, lockrecord.FieldAlertAt), at),
			put(layout.Field(name, lockrecord.FieldAutoUnlockAt), at)}
		if p.next(3) > 0 {
			ops = append(ops, put(layout.Field(name, lockrecord.FieldAlive), at+" tenant 41"))
		}
		return ops
	case 5, 6:
		return []op{put(field, value)}
	case 7:
		return []op{remove(field)}
	case 8:
		key := layout.Record(name) + strangers[p.next(len(strangers))]
		return []op{{key: key, value: "?", remove: p.next(2) == 0}}
	case 9:
		key := layout.Ticket(name, fmt.Sprint(p.next(4)))
		ticket := []string{`{"uuid":"u","owner":"o","since":"1553682600"}`, `{"uuid":"u","holding":true}`,
			"{"}[p.next(3)]
		return []op{{key: key, value: ticket, remove: p.next(2) == 0}}
	case 10:
		key := layout.Prefix() + outlaws[p.next(len(outlaws))]
		return []op{{key: key, value: "?", remove: p.next(2) == 0}}
	case 12, 13:
		return []op{p.statement(name)}
	case 14:
		p.uuids++
		return p.plain(name, uuid(p.uuids))
	default:
		key := layout.Unlocker(fmt.Sprint(p.next(3)))
		return []op{{key: key, value: `{"id":"1","now":"1553682600"}`, remove: p.next(2) == 0}}
	}
}

// plain writes a record of plain keys, some of them unusual.
func (p *player) plain(name, id string) []op {
	ops := []op{
		put(layout.Field(name, lockrecord.FieldUUID), id),
		put(layout.Field(name, lockrecord.FieldAlertAt), "1553682600"),
		put(layout.Field(name, lockrecord.FieldAutoUnlockAt), "1553682900.5"),
	}
	for _, field := range fields[3:] {
		usual := map[string]string{"pid": "17", lockrecord.FieldLockedAt: "1553682500",
			lockrecord.FieldAlive: "1553682550 a", lockrecord.FieldMetadata: `{"tenant":"41"}`}[field]
		switch p.next(8) {
		case 0:
		case 1:
			ops = append(ops, put(layout.Field(name, field), values[p.next(len(values))]))
		default:
			if field != lockrecord.FieldMetadata && field != "client" || p.next(8) == 0 {
				ops = append(ops, put(layout.Field(name, field), cmp.Or(usual, "x"+field)))
			}
		}
	}
	return ops
}

// statement returns the operations of a good or bad witness on a lock.
func (p *player) statement(name string) op {
	id := uuid(1 + p.next(max(1, p.uuids)))
	if current, ok := p.w.get(layout.Field(name, lockrecord.FieldUUID)); ok && p.next(4) > 0 {
		id = string(current.Value)
	}
	key := layout.Death(id)
	if p.next(3) == 0 {
		key = layout.Suspicion(id)
	}
	if p.next(4) == 0 {
		return remove(key)
	}
	token := int64(p.next(40))
	if current, ok := p.w.get(layout.Field(name, lockrecord.FieldUUID)); ok && p.next(4) > 0 {
		token = current.CreateRevision
	}
	causes := []string{metadata.CauseProcessEnded, metadata.CausePodEnded, metadata.CausePodDeleted, "old age"}
	st := metadata.Statement{Name: name, UUID: id, Token: token, Cause: causes[p.next(len(causes))], Reason: "seen"}
	return put(key, []string{protocol.Marshal(st), protocol.Marshal(st), protocol.Marshal(st), "{", ""}[p.next(5)])
}

// FuzzApply checks that each event has the effect of decoding all keys again, and that a list does not differ.
func FuzzApply(f *testing.F) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 0))
		b := make([]byte, 50+random.IntN(1500))
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		w := newWorld()
		p := &player{t: t, bytes: b, w: w}
		for range p.next(8) {
			p.turn()
		}
		follower := run(t, w.source(), lockview.Options{})
		settle(t, follower, w)
		for len(p.bytes) > 0 && !t.Failed() {
			p.turn()
			settle(t, follower, w)
			differ(t, fmt.Sprintf("after %d revisions", w.now()), show(follower), w.truth())
		}
		reader := lockview.New(layout, w.source(), lockview.Options{})
		proctest.Must(t, reader.Load(t.Context()))
		differ(t, fmt.Sprintf("a list after %d revisions", w.now()), show(reader), w.truth())
	})
}
