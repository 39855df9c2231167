package gateway

import (
	"cmp"
	"maps"
	"net/http"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Every body in transactions.json is sent to a real etcd three times: when its compares hold, again as if the first
// answer had been lost, and when they do not hold.
func TestBodiesWithEtcd(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, etcdtest.Gateway())
	etcd := server.Client(t)
	f := readFile(t)
	grant(t, &caller{endpoint: server.Endpoint()}, f)
	for _, c := range f.Transactions {
		t.Run(c.Step+": "+c.About, func(t *testing.T) {
			p := &play{t: t, etcd: etcd, caller: caller{endpoint: server.Endpoint()}, keys: layout(t), c: c}
			p.begin()
			before := p.prepare()
			p.send(scene{"the compares hold", p.done(before), first(c)})
			p.c.Input.Unanswered = true
			p.send(scene{"the first answer was lost", p.done(before), second(c)})
			p.c.Input.Unanswered = false
			p.begin()
			before = p.spoil()
			p.send(scene{"the compares do not hold", p.notDone(before), third(c)})
		})
	}
}

// grant grants the leases that the file names.
func grant(t *testing.T, c *caller, f file) {
	t.Helper()
	granted := map[string]bool{"": true}
	for _, of := range f.Transactions {
		ids := []string{of.Input.Lease}
		if of.Input.Older != nil {
			ids = append(ids, of.Input.Older.Lease)
		}
		for _, id := range ids {
			if !granted[id] {
				c.must(t, "/v3/lease/grant", `{"TTL":"3600","ID":"`+id+`"}`)
				granted[id] = true
			}
		}
	}
}

// another is who holds the lock, or waits, where the case is to fail.
const another = "9d3b0a5e-8a53-4a4e-9c7a-0d3a7f4d1e55"

// play sends the body of one case.
type play struct {
	t      *testing.T
	etcd   *clientv3.Client
	caller caller
	keys   protocol.Layout
	c      transaction

	revision string // create revision of what was put for the compares: of my hold, or of my ticket
}

// scene is what a send is to do.
type scene struct {
	name    string
	keys    state
	verdict string
}

// state is all keys with their values, and " lease " and its id where there is one.
type state map[string]string

// begin removes what was there.
func (p *play) begin() {
	p.t.Helper()
	if _, err := p.etcd.Delete(p.t.Context(), p.keys.Prefix(), clientv3.WithPrefix()); err != nil {
		p.t.Fatal(err)
	}
	p.revision = ""
}

// put writes a key and returns its create revision.
func (p *play) put(key, value, lease string) string {
	p.t.Helper()
	r, err := p.etcd.Put(p.t.Context(), key, value, clientv3.WithLease(clientv3.LeaseID(number(p.t, lease))))
	if err != nil {
		p.t.Fatal(err)
	}
	return text(r.Header.Revision)
}

func (p *play) all() state {
	p.t.Helper()
	r, err := p.etcd.Get(p.t.Context(), p.keys.Prefix(), clientv3.WithPrefix())
	if err != nil {
		p.t.Fatal(err)
	}
	all := state{}
	for _, kv := range r.Kvs {
		all[string(kv.Key)] = leased(string(kv.Value), text(kv.Lease))
	}
	return all
}

func leased(value, lease string) string {
	if lease == "" || lease == "0" {
		return value
	}
	return value + " lease " + lease
}

func (p *play) uuidKey() string { return p.keys.Field(p.c.Input.Lock, metadata.FieldUUID) }

func (p *play) tail() string { return p.keys.Tail(p.c.Input.Lock) }

// ahead is whose ticket is before mine where somebody's is.
func (p *play) ahead() string { return cmp.Or(p.c.Input.Before, another) }

func (p *play) ticket(of string) string { return p.keys.Ticket(p.c.Input.Lock, of) }

// prepare makes the compares hold.
func (p *play) prepare() state {
	p.t.Helper()
	in := p.c.Input
	switch p.c.Step {
	case "alive", "release", "release_in_doubt", "cancel", "withdraw":
		p.revision = p.put(p.uuidKey(), in.UUID, "")
		p.put(p.keys.Field(in.Lock, metadata.FieldAutoUnlockAt), "1553682601", "")
		if number(p.t, in.Seen) != 0 {
			seen := p.put(p.keys.Field(in.Lock, metadata.FieldAlive), "1553682600", "")
			p.c.Body = []byte(strings.ReplaceAll(string(p.c.Body), `"mod_revision": "`+in.Seen+`"`,
				`"mod_revision": "`+seen+`"`))
		}
		if in.Queued || p.c.Step == "release_in_doubt" {
			p.put(p.ticket(in.UUID), "{}", "")
			p.put(p.tail(), in.UUID, "")
		}
	case "look", "scan", "turn", "leave", "leave_as_tail":
		if in.Older != nil {
			in.Older.CreateRevision = p.old(in.Older)
		}
		p.revision = p.put(p.ticket(in.UUID), "{}", "")
		p.put(p.tail(), in.UUID, "")
	case "restore_tail":
		in.Older.CreateRevision = p.old(in.Older)
	}
	return p.all()
}

// old puts the older ticket.
func (p *play) old(w *waiter) string {
	p.t.Helper()
	revision := p.put(p.ticket(w.Ticket), "{}", w.Lease)
	p.c.Body = []byte(strings.ReplaceAll(string(p.c.Body), `"create_revision": "`+w.CreateRevision+`"`,
		`"create_revision": "`+revision+`"`))
	return revision
}

// spoil makes a compare fail: another holds the lock, waits before me, or is the tail.
func (p *play) spoil() state {
	p.t.Helper()
	in := p.c.Input
	switch p.c.Step {
	case "join":
		p.put(p.keys.Cancelled(in.UUID), "", "")
	case "look", "scan":
		p.put(p.ticket(p.ahead()), "{}", "")
		p.revision = p.put(p.ticket(in.UUID), "{}", "")
		p.put(p.tail(), in.UUID, "")
	case "turn":
		p.revision = p.put(p.ticket(in.UUID), "{}", "")
		p.put(p.uuidKey(), another, "")
	case "leave", "leave_as_tail", "restore_tail":
		p.put(p.ticket(in.UUID), "{}", "")
		p.put(p.tail(), another, "")
	default:
		p.put(p.uuidKey(), another, "")
	}
	return p.all()
}

// send posts the body, with the revisions that the keys have here, and looks what it did.
func (p *play) send(want scene) {
	p.t.Helper()
	body, in := string(p.c.Body), p.c.Input
	if p.revision != "" {
		for _, written := range []string{in.Token, in.Position} {
			body = strings.ReplaceAll(body, `"create_revision": "`+written+`"`, `"create_revision": "`+p.revision+`"`)
		}
		if in.Position != "" {
			body = strings.ReplaceAll(body, `"max_create_revision": "`+text(number(p.t, in.Position)-1)+`"`,
				`"max_create_revision": "`+text(number(p.t, p.revision)-1)+`"`)
			in.Position = p.revision
		}
		if in.Token != "" {
			in.Token = p.revision
		}
	}
	r := p.caller.post(p.t, "/v3/kv/txn", body)
	if r.status != http.StatusOK {
		p.t.Fatalf("%s: %d %s", want.name, r.status, r.text)
	}
	got := reader{p.t, p.keys, p.c.Step, in}.read(answer{Status: r.status, Body: []byte(r.text)})
	if got.Verdict != want.verdict {
		p.t.Errorf("%s: the verdict is %q, want %q, on %s", want.name, got.Verdict, want.verdict, r.text)
	}
	if diff := gocmp.Diff(want.keys, p.all()); diff != "" {
		p.t.Errorf("%s: the keys differ (-want +got):\n%s", want.name, diff)
	}
	if created := got.Token + got.Position; created != "" {
		p.isCreateRevision(created)
	}
	if got.Verdict == "wait" && got.Watch != p.ticket(p.ahead()) {
		p.t.Errorf("the waiter watches %q instead of the ticket before its own", got.Watch)
	}
}

// isCreateRevision checks that a token is that of the hold, and a position that of the ticket.
func (p *play) isCreateRevision(got string) {
	p.t.Helper()
	key := p.uuidKey()
	if p.c.Step == "join" {
		key = p.ticket(p.c.Input.UUID)
	}
	r, err := p.etcd.Get(p.t.Context(), key)
	if err != nil || len(r.Kvs) != 1 {
		p.t.Fatalf("%s is not there: %v", key, err)
	}
	if want := text(r.Kvs[0].CreateRevision); got != want {
		p.t.Errorf("the token or position is %s, want %s", got, want)
	}
}

// done is what the keys are after the step.
func (p *play) done(before state) state {
	in := p.c.Input
	after := maps.Clone(before)
	record := func() {
		for _, f := range in.Fields {
			after[p.keys.Field(in.Lock, f.name)] = f.value
		}
	}
	switch p.c.Step {
	case "acquire", "try", "alive":
		record()
	case "turn":
		after = state{}
		record()
	case "release", "withdraw":
		after = state{}
	case "cancel", "release_in_doubt":
		after = state{p.keys.Cancelled(in.UUID): leased(in.Lock, in.Lease)}
	case "join":
		after[p.ticket(in.UUID)] = leased(in.Ticket, in.Lease)
		after[p.tail()] = leased(in.UUID, in.Lease)
	case "leave_as_tail":
		delete(after, p.ticket(in.UUID))
		delete(after, p.tail())
	}
	if in.Older != nil {
		after[p.tail()] = leased(in.Older.Ticket, in.Older.Lease)
	}
	return after
}

// notDone is what the keys are after the step where its compares failed.
func (p *play) notDone(before state) state {
	in := p.c.Input
	after := maps.Clone(before)
	switch p.c.Step {
	case "cancel", "release_in_doubt":
		after[p.keys.Cancelled(in.UUID)] = leased(in.Lock, in.Lease)
	case "leave":
		delete(after, p.ticket(in.UUID))
	}
	return after
}

// first is the verdict when the compares hold, and nobody is ahead.
func first(c transaction) string {
	if c.Input.Before != "" { // who was ahead is neither there nor the holder
		return "scan"
	}
	return map[string]string{
		"acquire": "held", "try": "held", "turn": "held", "alive": "still_held", "release": "released",
		"release_in_doubt": "released", "cancel": "cancelled", "withdraw": "again", "join": "joined", "look": "turn",
		"scan": "turn", "leave": "as_tail", "leave_as_tail": "left", "restore_tail": "again",
	}[c.Step]
}

// second is the verdict on another send of what was committed.
func second(c transaction) string {
	switch c.Step {
	case "acquire", "try", "turn":
		return "held_by_earlier_send"
	case "join":
		return "joined_by_earlier_send"
	case "leave_as_tail": // then it leaves again, which finds no ticket
		return "again"
	case "alive":
		if c.Input.Seen != "" { // a heartbeat finds an alive that it does not know: its own
			return "again"
		}
	}
	return first(c)
}

// third is the verdict when the compares do not hold, or somebody is ahead.
func third(c transaction) string {
	if c.Step == "look" && c.Input.Before == "" { // the first does not read who is ahead
		return "turn"
	}
	return map[string]string{
		"acquire": "refused", "try": "refused", "turn": "again", "alive": "lost", "release": "lost",
		"release_in_doubt": "lost", "cancel": "cancelled", "withdraw": "again", "join": "lost", "look": "wait",
		"scan": "wait", "leave": "left", "leave_as_tail": "again", "restore_tail": "again",
	}[c.Step]
}
