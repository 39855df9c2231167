package protocol_test

import (
	"bytes"
	gocmp "cmp"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// The vectors are what clients in other languages test themselves with; docs/protocol/vectors.md describes it.
type vectors struct {
	Protocol int
	Prefix   string
	Fields   struct {
		Keys         []string
		KeysOfOthers []string `json:"keys_of_others"`
		Members      []string
	}
	Names   []struct{ About, Name, Segment string }
	Refused []struct {
		About, Name string
		Bytes       []byte `json:"name_base64"`
	} `json:"refused_names"`
	RefusedSegments []struct{ About, Segment string } `json:"refused_segments"`
	Times           []struct {
		About, Text, Written string
		Seconds, Nanoseconds int64
	}
	RefusedTimes []struct{ About, Text string } `json:"refused_times"`
	Keys         []struct{ About, Key, Kind, Lock, ID string }
	Records      []recordVector
	Statements   []statementVector
	Tickets      []documentVector
	Endings      []documentVector
	Requests     []forHoldVector
	Extensions   []forHoldVector

	Acknowledgements []forHoldVector
	Delays           []struct {
		documentVector
		Key string
	}
}

// documentVector is the value of a key and what it says; nothing where it cannot be read.
type documentVector struct {
	About, Value string
	Bytes        []byte `json:"value_base64"`
	Decoded      map[string]any
}

func (v documentVector) value() string { return v.Value + string(v.Bytes) }

// forHoldVector is the value of a key that others wrote for the holder of this hold, and what it says; nothing where
// the holder ignores it.
type forHoldVector struct {
	documentVector
	UUID  string
	Token int64
}

// fieldVectors are the keys of a record.
type fieldVectors []struct {
	Name, Value string
	Bytes       []byte `json:"value_base64"`
	ModRevision int64  `json:"mod_revision"`
}

func (v fieldVectors) fields() (fields []metadata.Field) {
	for _, f := range v {
		revision := gocmp.Or(f.ModRevision, 7)
		fields = append(fields, metadata.Field{Name: f.Name, Value: f.Value + string(f.Bytes),
			CreateRevision: revision, ModRevision: revision})
	}
	return fields
}

type recordVector struct {
	About, Lock string
	Fields      fieldVectors
	Foreign     []string
	Decoded     decoded
	Problems    []problem
	Malformed   bool
	States      []stateVector
}

// stateVector is the state of a record at a time, without a default policy.
type stateVector struct {
	At    metadata.Time
	State metadata.State
}

// statementVector is a record, and a statement of a witness about it or not.
type statementVector struct {
	About, Lock string
	Fields      fieldVectors
	Key, Value  string
	ModRevision int64 `json:"mod_revision"`
	Believed    string
	States      []stateVector
}

// decoded is what a record means; a time that is missing or cannot be read is empty.
type decoded struct {
	UUID           string         `json:"uuid"`
	AlertAt        string         `json:"alert_at"`
	AutoUnlockAt   string         `json:"auto_unlock_at"`
	Alive          *alive         `json:"alive"`
	Owner          string         `json:"owner"`
	OwnerBytes     []byte         `json:"owner_base64"`
	Hostname       string         `json:"hostname"`
	PID            int64          `json:"pid"`
	LockedAt       string         `json:"locked_at"`
	Purpose        string         `json:"purpose"`
	Backtrace      string         `json:"backtrace"`
	Client         string         `json:"client"`
	Attributes     map[string]any `json:"attributes"`
	LockDelay      *int64         `json:"lock_delay"`
	HeartbeatUntil string         `json:"heartbeat_until"`
	metadata.Process
}

type alive struct {
	At       string `json:"at"`
	Progress string `json:"progress"`
}

type problem struct {
	Field  string
	Reason metadata.ProblemKind
}

func readVectors(t *testing.T) vectors {
	t.Helper()
	file, err := os.ReadFile("../../docs/protocol/vectors.json")
	proctest.Must(t, err)
	var v vectors
	decoder := json.NewDecoder(bytes.NewReader(file))
	decoder.UseNumber()
	decoder.DisallowUnknownFields()
	proctest.Must(t, decoder.Decode(&v))
	if v.Protocol != 1 || v.Prefix != protocol.DefaultPrefix {
		t.Fatalf("the vectors are of protocol %d with prefix %q", v.Protocol, v.Prefix)
	}
	return v
}

func TestVectorsOfFields(t *testing.T) {
	v := readVectors(t).Fields
	for place, want := range map[lockrecord.Place][]string{
		lockrecord.OwnKey: v.Keys, lockrecord.KeyOfOthers: v.KeysOfOthers, lockrecord.Member: v.Members,
	} {
		if diff := cmp.Diff(want, lockrecord.ReservedFields(place)); diff != "" {
			t.Errorf("fields (-vectors +table):\n%s", diff)
		}
	}
}

func TestVectorsOfNames(t *testing.T) {
	v := readVectors(t)
	for _, c := range v.Names {
		t.Run(c.About, func(t *testing.T) {
			if err := metadata.CheckName(c.Name); err != nil {
				t.Errorf("%q is refused: %v", c.Name, err)
			}
			if got := protocol.EncodeName(c.Name); got != c.Segment {
				t.Errorf("%q is written %q, want %q", c.Name, got, c.Segment)
			}
			if got, err := protocol.DecodeName(c.Segment); got != c.Name || err != nil {
				t.Errorf("%q is read %q, %v, want %q", c.Segment, got, err, c.Name)
			}
		})
	}
	for _, c := range v.Refused {
		t.Run("refused: "+c.About, func(t *testing.T) {
			if name := c.Name + string(c.Bytes); metadata.CheckName(name) == nil {
				t.Errorf("%q is accepted", name)
			}
		})
	}
	for _, c := range v.RefusedSegments {
		t.Run("refused: "+c.About, func(t *testing.T) {
			if name, err := protocol.DecodeName(c.Segment); err == nil {
				t.Errorf("%q is read as %q", c.Segment, name)
			}
		})
	}
}

func TestVectorsOfTimes(t *testing.T) {
	v := readVectors(t)
	for _, c := range v.Times {
		t.Run(c.About, func(t *testing.T) {
			got, err := metadata.ParseTime(c.Text)
			if want := time.Unix(c.Seconds, c.Nanoseconds).UTC(); err != nil || got != want {
				t.Fatalf("%q is read %v, %v, want %v", c.Text, got, err, want)
			}
			written := gocmp.Or(c.Written, c.Text)
			if got := metadata.FormatTime(got); got != written {
				t.Errorf("%q is written %q, want %q", c.Text, got, written)
			}
		})
	}
	for _, c := range v.RefusedTimes {
		t.Run("refused: "+c.About, func(t *testing.T) {
			if got, err := metadata.ParseTime(c.Text); err == nil {
				t.Errorf("%q is read as %v", c.Text, got)
			}
		})
	}
}

func TestVectorsOfKeys(t *testing.T) {
	v := readVectors(t)
	layout := protocol.DefaultLayout()
	for _, c := range v.Keys {
		t.Run(c.About, func(t *testing.T) {
			want := protocol.Key{Kind: protocol.Kind(c.Kind), Lock: c.Lock, ID: c.ID}
			if got := layout.Parse(c.Key); got != want {
				t.Errorf("%q is %+v, want %+v", c.Key, got, want)
			}
			if built := build(layout, want); want.Kind != protocol.KindForeign && built != c.Key {
				t.Errorf("%+v is built %q, want %q", want, built, c.Key)
			}
		})
	}
}

// build is the key that Parse took apart; audit keys are built from their time and are left as they are.
func build(l protocol.Layout, k protocol.Key) string {
	switch k.Kind {
	case protocol.KindField:
		return l.Field(k.Lock, k.ID)
	case protocol.KindTicket:
		return l.Ticket(k.Lock, k.ID)
	case protocol.KindTail:
		return l.Tail(k.Lock)
	case protocol.KindCancelled:
		return l.Cancelled(k.ID)
	case protocol.KindHistory:
		return l.History(k.ID)
	case protocol.KindUnlocker:
		return l.Unlocker(k.ID)
	case protocol.KindDeath:
		return l.Death(k.ID)
	case protocol.KindSuspicion:
		return l.Suspicion(k.ID)
	case protocol.KindPeriod:
		return l.Period(k.Lock)
	case protocol.KindDelay:
		return l.Delay(k.Lock)
	case protocol.KindTask:
		return l.Task(strings.TrimSuffix(k.Lock, "/"+k.ID), k.ID)
	}
	return l.Audits() + k.ID
}

func TestVectorsOfRecords(t *testing.T) {
	for _, c := range readVectors(t).Records {
		t.Run(c.About, func(t *testing.T) {
			got := lockrecord.Decode(c.Lock, c.Fields.fields(), c.Foreign...)
			want := c.Decoded
			want.Owner, want.OwnerBytes = want.Owner+string(want.OwnerBytes), nil
			if diff := cmp.Diff(want, flatten(got), validText); diff != "" {
				t.Errorf("decoded (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.Problems, problemsOf(got), anyOrder, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if got.Malformed() != c.Malformed {
				t.Errorf("malformed: %v, want %v", got.Malformed(), c.Malformed)
			}
			if got.HasForeignKeys() != (len(c.Foreign) > 0) {
				t.Errorf("foreign: %v", got.HasForeignKeys())
			}
			isIn(t, c.States, &got.Record)
		})
	}
}

func TestVectorsOfStatements(t *testing.T) {
	for _, c := range readVectors(t).Statements {
		t.Run(c.About, func(t *testing.T) {
			r := lockrecord.Decode(c.Lock, c.Fields.fields()).Record
			key := protocol.DefaultLayout().Parse(c.Key)
			kv := protocol.KV{Value: []byte(c.Value), ModRevision: c.ModRevision}
			statement := protocol.DecodeStatement(key.ID, kv)
			switch key.Kind {
			case protocol.KindDeath:
				lockrecord.AttachStatements(&r, statement, nil)
			case protocol.KindSuspicion:
				lockrecord.AttachStatements(&r, nil, statement)
			default:
				t.Fatalf("%s is the key of a %s", c.Key, key.Kind)
			}
			if got := believed(&r); got != c.Believed {
				t.Errorf("believed: %q, want %q", got, c.Believed)
			}
			isIn(t, c.States, &r)
		})
	}
}

func isIn(t *testing.T, states []stateVector, r *metadata.Record) {
	t.Helper()
	for _, s := range states {
		if v := staleness.Judge(r, staleness.Policy{}, staleness.Moment{Wall: s.At.Time}); v.State != s.State {
			t.Errorf("at %s it is %s, want %s", metadata.FormatTime(s.At.Time), v.State, s.State)
		}
	}
}

func TestVectorsShowEveryState(t *testing.T) {
	v := readVectors(t)
	shown := map[metadata.State]bool{}
	for _, c := range v.Records {
		for _, s := range c.States {
			shown[s.State] = true
		}
	}
	for _, c := range v.Statements {
		for _, s := range c.States {
			shown[s.State] = true
		}
	}
	if len(shown) != len(staleness.States()) {
		t.Errorf("the vectors show only the states %v", shown)
	}
}

func believed(r *metadata.Record) string {
	switch {
	case r.ProvenDead():
		return "proof"
	case r.Disputed():
		return "disputed"
	case r.Death != nil:
		return "detached"
	case r.Suspicion != nil:
		return "suspicion"
	}
	return ""
}

func TestVectorsOfTicketsAndEndings(t *testing.T) {
	v := readVectors(t)
	testDocuments[metadata.Ticket](t, v.Tickets)
	testDocuments[metadata.Ending](t, v.Endings)
}

func TestVectorsOfDelays(t *testing.T) {
	for _, c := range readVectors(t).Delays {
		t.Run(c.About, func(t *testing.T) {
			key := protocol.DefaultLayout().Parse(c.Key)
			if key.Kind != protocol.KindDelay {
				t.Fatalf("%s is the key of a %s", c.Key, key.Kind)
			}
			d := protocol.DecodeDelay(key.Lock, protocol.KV{Value: []byte(c.value())})
			if d.Unreadable != (c.Decoded == nil) || d.Name != key.Lock {
				t.Errorf("%s is read as %+v", c.Value, d)
			}
			if c.Decoded != nil {
				same(t, c.Decoded, protocol.MarshalDelay(d))
			}
		})
	}
}

func testDocuments[T metadata.Ticket | metadata.Ending](t *testing.T, cases []documentVector) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.About, func(t *testing.T) {
			document, err := protocol.Unmarshal[T]([]byte(c.value()))
			if (err != nil) != (c.Decoded == nil) {
				t.Fatalf("%s is read as %+v, %v", c.Value, document, err)
			}
			if c.Decoded != nil {
				same(t, c.Decoded, protocol.Marshal(document))
			}
		})
	}
}

func TestVectorsOfNotes(t *testing.T) {
	v := readVectors(t)
	for field, cases := range map[string][]forHoldVector{lockrecord.FieldAsked: v.Requests,
		lockrecord.FieldExtended: v.Extensions, lockrecord.FieldAcknowledged: v.Acknowledgements} {
		for _, c := range cases {
			t.Run(field+": "+c.About, func(t *testing.T) { testForHold(t, field, c) })
		}
	}
}

func testForHold(t *testing.T, field string, c forHoldVector) {
	t.Helper()
	r := lockrecord.Decode("a", []metadata.Field{
		{Name: lockrecord.FieldUUID, Value: c.UUID, CreateRevision: c.Token, ModRevision: c.Token},
		{Name: field, Value: c.value(), CreateRevision: c.Token + 1, ModRevision: c.Token + 1},
	})
	switch {
	case c.Decoded == nil && (r.FinishRequest != nil || r.MoreTime != nil || r.Acknowledgement != nil):
		t.Errorf("%s is read as %+v, %+v, %+v", c.Value, r.FinishRequest, r.MoreTime, r.Acknowledgement)
	case c.Decoded == nil:
	case field == lockrecord.FieldAsked && r.FinishRequest != nil:
		same(t, c.Decoded, protocol.Marshal(*r.FinishRequest))
	case field == lockrecord.FieldExtended && r.MoreTime != nil:
		same(t, c.Decoded, protocol.Marshal(*r.MoreTime))
	case field == lockrecord.FieldAcknowledged && r.Acknowledgement != nil:
		same(t, c.Decoded, protocol.Marshal(*r.Acknowledgement))
	default:
		t.Errorf("%s is ignored: %v", c.Value, r.Problems)
	}
}

// same compares a document with the members that it is to have.
func same(t *testing.T, want map[string]any, document string) {
	t.Helper()
	var got map[string]any
	decoder := json.NewDecoder(strings.NewReader(document))
	decoder.UseNumber()
	proctest.Must(t, decoder.Decode(&got))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
}

// validText has one U+FFFD for bytes in a row that are not UTF-8: languages count them differently.
var validText = cmpopts.AcyclicTransformer("valid", func(text string) string {
	return replaced.ReplaceAllString(strings.ToValidUTF8(text, "\ufffd"), "\ufffd")
})

var replaced = regexp.MustCompile("\ufffd+")

var anyOrder = cmpopts.SortSlices(func(a, b problem) bool {
	return gocmp.Or(strings.Compare(a.Field, b.Field), strings.Compare(string(a.Reason), string(b.Reason))) < 0
})

func flatten(d metadata.FullRecord) decoded {
	f := decoded{
		UUID: d.UUID, AlertAt: written(d.AlertAt), AutoUnlockAt: written(d.AutoUnlockAt), LockedAt: written(d.LockedAt),
		Owner: d.Owner, Hostname: d.Hostname, PID: d.PID, Purpose: d.Purpose, Backtrace: d.Backtrace, Client: d.Client,
		Attributes: d.Attributes, HeartbeatUntil: written(d.HeartbeatUntil),
	}
	if d.Process != nil {
		f.Process = *d.Process
	}
	if d.LockDelay != 0 {
		seconds := max(0, int64(d.LockDelay/time.Second))
		f.LockDelay = &seconds
	}
	if d.Alive != nil {
		f.Alive = &alive{At: written(d.Alive.At), Progress: d.Alive.Progress}
	}
	return f
}

func written(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return metadata.FormatTime(t)
}

func problemsOf(d metadata.FullRecord) []problem {
	var problems []problem
	for _, p := range d.Problems {
		problems = append(problems, problem{p.Field, p.Kind})
	}
	return problems
}
