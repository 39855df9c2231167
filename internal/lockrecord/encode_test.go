package lockrecord_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func draft(change ...func(*lockrecord.Draft)) lockrecord.Draft {
	at := time.Unix(1_553_682_600, 250_000_000).UTC()
	d := lockrecord.Draft{
		UUID:     "6f1f6f5e-5d1c-4e52-9d2e-0a9a3f1c7b11",
		Identity: metadata.Identity{Owner: "billing", Hostname: "billing-7f9c", PID: 17, Purpose: "nightly invoices"},
		Client:   "go/1.0.0",
		LockedAt: at, AlertAt: at.Add(5 * time.Minute), AutoUnlockAt: at.Add(15 * time.Minute),
		HeartbeatUntil: at.Add(time.Hour),
		Backtrace:      "invoice.(*Run).tenant<a&b>\ncron.tick\n",
		Attributes:     map[string]any{"tenant": 41, "team": "core", "urgent": true},
	}
	for _, c := range change {
		c(&d)
	}
	return d
}

func attribute(name string, value any) func(*lockrecord.Draft) {
	return func(d *lockrecord.Draft) { d.Attributes = map[string]any{name: value} }
}

// readBack checks that a reader gets what a draft says.
func readBack(t *testing.T, d lockrecord.Draft, got metadata.FullRecord) {
	t.Helper()
	if len(got.Problems) > 0 {
		t.Errorf("problems: %v", got.Problems)
	}
	back := lockrecord.Draft{
		UUID: got.UUID, Identity: got.Identity, Client: got.Client, LockedAt: got.LockedAt, AlertAt: got.AlertAt,
		AutoUnlockAt: got.AutoUnlockAt, Backtrace: got.Backtrace, LockDelay: got.LockDelay, Attributes: got.Attributes,
		HeartbeatUntil: got.HeartbeatUntil,
	}
	if got.Process != nil {
		back.Process = *got.Process
	}
	if d.Attributes["tenant"] != nil {
		d.Attributes["tenant"] = json.Number("41")
	}
	if diff := cmp.Diff(d, back); diff != "" {
		t.Error(diff)
	}
}

// A field that is added to a draft or a record, and not to the table, is zero here.
func TestEveryFieldOfARecordIsCovered(t *testing.T) {
	d := draft()
	fill(reflect.ValueOf(&d).Elem())
	fields, err := d.Fields()
	proctest.Must(t, err)
	for name, document := range map[string]any{
		lockrecord.FieldAsked:        metadata.FinishRequest{UUID: d.UUID, Token: 7},
		lockrecord.FieldExtended:     metadata.MoreTime{UUID: d.UUID, Token: 7},
		lockrecord.FieldAcknowledged: metadata.Acknowledgement{UUID: d.UUID, Token: 7},
	} {
		value, err := json.Marshal(document)
		proctest.Must(t, err)
		fields = append(fields, metadata.Field{Name: name, Value: string(value)})
	}
	fields = append(fields, metadata.Field{Name: lockrecord.FieldAlive, Value: lockrecord.FormatAlive(d.LockedAt, "")})
	for i := range fields {
		fields[i].CreateRevision, fields[i].ModRevision = 7, 7
		fields[i].Version = 3
	}
	if !strings.Contains(fields[3].Value, "<a&b>") {
		t.Errorf("people read this with etcdctl: %s", fields[3].Value)
	}
	backwards := slices.Clone(fields) // a reader may give them in any order
	slices.Reverse(backwards)
	got := lockrecord.Decode("billing", backwards)
	if readBack(t, d, got); backwards[0] != fields[len(fields)-1] {
		t.Error("the caller's fields were sorted")
	}
	// What is wrong with a record and where it lies, what witnesses say, and what a reader adds.
	want := []string{"Problems", "Misplaced", "Death", "Suspicion", "Seen", "SeenAt"}
	if diff := cmp.Diff(want, zeros(reflect.ValueOf(got))); diff != "" {
		t.Errorf("fields that are not read (-stated +got):\n%s", diff)
	}
}

// fill gives each field that is zero a value.
func fill(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case f.Kind() == reflect.Struct && f.Type() != reflect.TypeFor[time.Time]():
			fill(f)
		case !f.IsZero():
		case f.Kind() == reflect.String:
			f.SetString("the " + v.Type().Field(i).Name)
		case f.CanInt():
			f.SetInt(int64(time.Minute))
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		}
	}
}

// zeros returns the names of the fields that are zero, with those of embedded structs and of the process.
func zeros(v reflect.Value) (names []string) {
	for i := range v.NumField() {
		f := v.Field(i)
		field := v.Type().Field(i)
		if process, ok := f.Interface().(*metadata.Process); ok && process != nil {
			f = reflect.ValueOf(*process)
			field.Anonymous = true
		}
		switch {
		case field.Anonymous:
			names = append(names, zeros(f)...)
		case f.IsZero():
			names = append(names, field.Name)
		}
	}
	return names
}

func TestZeroLikeValuesAreWritten(t *testing.T) {
	for member, change := range map[string]func(*lockrecord.Draft){
		`"lock_delay":0`:           func(d *lockrecord.Draft) { d.LockDelay = metadata.NoLockDelay },
		`"locked_at":"0000000000"`: func(d *lockrecord.Draft) { d.LockedAt = time.Unix(0, 0).UTC() },
		`"zero":0`:                 attribute("zero", json.Number("0")),
		`"no":false`:               attribute("no", false),
		`"empty":""`:               attribute("empty", ""),
	} {
		t.Run(member, func(t *testing.T) {
			d := draft(func(d *lockrecord.Draft) { d.Attributes = nil }, change)
			fields, err := d.Fields()
			proctest.Must(t, err)
			if !strings.Contains(fields[3].Value, member) {
				t.Errorf("written without it: %s", fields[3].Value)
			}
			readBack(t, d, lockrecord.Decode("billing", fields))
		})
	}
}

func TestDraftOmitsEmptyMembers(t *testing.T) {
	fields, err := draft(func(d *lockrecord.Draft) {
		*d = lockrecord.Draft{UUID: d.UUID, LockedAt: d.LockedAt, AlertAt: d.AlertAt, AutoUnlockAt: d.AutoUnlockAt}
	}).Fields()
	proctest.Must(t, err)
	want := []metadata.Field{
		{Name: "uuid", Value: "6f1f6f5e-5d1c-4e52-9d2e-0a9a3f1c7b11"},
		{Name: "alert_at", Value: "1553682900.25"}, {Name: "auto_unlock_at", Value: "1553683500.25"},
		{Name: "metadata", Value: `{"locked_at":"1553682600.25"}`},
	}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Error(diff)
	}
}

func TestDraftRefuses(t *testing.T) {
	attributes := func(n int, value any) func(*lockrecord.Draft) {
		return func(d *lockrecord.Draft) {
			d.Attributes = map[string]any{}
			for i := range n {
				d.Attributes[fmt.Sprint("a", i)] = value
			}
		}
	}
	cases := map[string]struct {
		change func(*lockrecord.Draft)
		says   string
	}{
		"a uuid in capitals": {func(d *lockrecord.Draft) { d.UUID = strings.ToUpper(d.UUID) },
			"not a UUID in lower case"},
		"no uuid": {func(d *lockrecord.Draft) { d.UUID = "" }, "not a UUID in lower case"},
		"an owner that is not UTF-8": {func(d *lockrecord.Draft) { d.Owner = "a\xff" },
			"owner is not valid UTF-8"},
		"a purpose over 1 KiB": {func(d *lockrecord.Draft) { d.Purpose = strings.Repeat("x", 1025) },
			"purpose has 1025 bytes, at most 1024 are allowed"},
		"an auto-unlock before the alert": {func(d *lockrecord.Draft) { d.AutoUnlockAt = d.AlertAt.Add(-1) },
			"auto_unlock_at is before alert_at"},
		"no deadline": {func(d *lockrecord.Draft) { d.AlertAt = time.Time{} },
			"alert_at 0001-01-01 00:00:00 +0000 UTC is outside 1970 to 2286"},
		"a deadline in the year 2300": {func(d *lockrecord.Draft) {
			d.AutoUnlockAt = time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)
		}, "outside 1970 to 2286"},
		"an attribute name with a dash": {attribute("a-b", "x"), `attribute name "a-b"`},
		"an attribute in the protocol's name": {attribute("alive", "x"),
			`attribute "alive": the name belongs to the protocol`},
		"an attribute that is a list": {attribute("tags", []string{"a"}),
			"want text, a number or a boolean, not []string"},
		"an attribute over 1 KiB": {attribute("a", strings.Repeat("x", 1025)),
			"attribute a has 1025 bytes"},
		"an attribute that is no number": {attribute("a", math.NaN()), "NaN"},
		"65 attributes":                  {attributes(65, 1), "65 attributes, at most 64 are allowed"},
		"more than 64 KiB in all": {attributes(64, strings.Repeat("x", 1024)),
			"bytes, at most 65536 are allowed"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := draft(c.change).Fields()
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want a sentence with %q", err, c.says)
			}
		})
	}
}

func TestLongBacktraceNeverFailsALock(t *testing.T) {
	frame := "example.com/billing/invoice.(*Run).tenant /src/billing/invoice/run.go:118\n"
	fields, err := draft(func(d *lockrecord.Draft) { d.Backtrace = strings.Repeat(frame, 10_000) }).Fields()
	proctest.Must(t, err)
	d := lockrecord.Decode("a", fields)
	if len(d.Problems) > 0 {
		t.Errorf("problems: %v", d.Problems)
	}
	kept, ok := strings.CutSuffix(d.Backtrace, "\n... cut\n")
	if !ok || len(d.Backtrace) > lockrecord.MaxBacktraceBytes || len(d.Backtrace) < lockrecord.MaxBacktraceBytes-200 {
		t.Errorf("%d bytes kept, ending in %q", len(d.Backtrace), d.Backtrace[len(d.Backtrace)-40:])
	}
	if strings.Count(kept+"\n", frame)*len(frame) != len(kept)+1 {
		t.Errorf("a frame was cut in two: %q", kept[len(kept)-100:])
	}
}

func TestAliveRoundTrips(t *testing.T) {
	at := time.Unix(1_553_682_700, 5).UTC()
	for name, c := range map[string]struct{ progress, want string }{
		"without a note":                    {"", ""},
		"with a note of several words":      {"page 3 of 9", "page 3 of 9"},
		"with a note that begins blank":     {" x", " x"},
		"with a note that is not UTF-8":     {"a\xffb", "a�b"},
		"with a note that is too long":      {strings.Repeat("é", 600), strings.Repeat("é", 512)},
		"with a note of more than one line": {"a\nb", "a\nb"},
	} {
		t.Run(name, func(t *testing.T) {
			d := lockrecord.Decode("a",
				[]metadata.Field{{Name: "alive", Value: lockrecord.FormatAlive(at, c.progress)}})
			if d.Alive == nil || d.Alive.At != at || d.Alive.Progress != c.want || len(d.Problems) != 3 {
				t.Errorf("%+v, %v", d.Alive, d.Problems)
			}
		})
	}
}
