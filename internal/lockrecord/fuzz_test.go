package lockrecord_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// FuzzDecode decodes records with hostile values.
func FuzzDecode(f *testing.F) {
	f.Add("billing", "uuid", "1553682900", "1553683500", "1553682600 note", `{"owner":"x"}`, "team", "core")
	f.Add("\xff", "", "soon", "-1", "NaN", `{"a":[[]],"b":{},"pid":-1}`, "pid", "\xff")
	f.Add("a", "x", "", "", " ", `{"\ud800":"\ud800","uuid":1}`, "owner", strings.Repeat("é", 1000))
	f.Fuzz(func(t *testing.T, lock, uuid, alertAt, autoUnlockAt, alive, document, field, value string) {
		fields := []metadata.Field{
			{Name: "uuid", Value: uuid, CreateRevision: 3, ModRevision: 3}, {Name: "alert_at", Value: alertAt},
			{Name: "auto_unlock_at", Value: autoUnlockAt, ModRevision: 5}, {Name: "alive", Value: alive},
			{Name: "metadata", Value: document},
		}
		switch field {
		case "uuid", "alert_at", "auto_unlock_at", "alive", "metadata": // a record has one key of a name
		default:
			fields = append(fields, metadata.Field{Name: field, Value: value})
		}
		d := lockrecord.Decode(lock, fields)
		checkBounds(t, d)
		if d.Token != 3 || d.DeadlineRevision != 5 || d.Revision != 5 {
			t.Errorf("token %d, deadline revision %d, revision %d", d.Token, d.DeadlineRevision, d.Revision)
		}
		e, err := protocol.Unmarshal[metadata.Ending]([]byte(protocol.Marshal(lockrecord.NewEnding(&d.Record,
			metadata.EndingForced, "me", "why", d.AlertAt))))
		if err != nil || e.Token != d.Token {
			t.Errorf("the ending of this record is not recorded: %+v, %v", e, err)
		}
	})
}

// checkBounds holds Decode to its limits.
func checkBounds(t *testing.T, d metadata.FullRecord) {
	t.Helper()
	for name, text := range map[string]string{
		"uuid": d.UUID, "owner": d.Owner, "hostname": d.Hostname, "purpose": d.Purpose, "client": d.Client,
	} {
		if len(text) > metadata.MaxTextBytes {
			t.Errorf("%s has %d bytes", name, len(text))
		}
	}
	if len(d.Backtrace) > lockrecord.MaxBacktraceBytes || len(d.Attributes) > lockrecord.MaxAttributes {
		t.Errorf("%d bytes of backtrace, %d attributes", len(d.Backtrace), len(d.Attributes))
	}
	for name, value := range d.Attributes {
		if text, ok := value.(string); len(name) > metadata.MaxTextBytes || ok && len(text) > metadata.MaxTextBytes {
			t.Errorf("attribute %.40q has %d bytes", name, len(text))
		}
	}
	if len(d.Problems) > 2*lockrecord.MaxAttributes+40 {
		t.Errorf("%d problems", len(d.Problems))
	}
	for _, p := range d.Problems {
		if len(p.Field)+len(p.Text) > 3*metadata.MaxTextBytes || p.Kind == "" {
			t.Errorf("problem %.80q of %d bytes", p.Text, len(p.Text))
		}
	}
}

// FuzzDecodeRecord checks that a record decoded without its backtrace is the same, problems included, and again the
// same from the parts of its keys that readers keep.
func FuzzDecodeRecord(f *testing.F) {
	for _, backtrace := range []string{
		`"main.main main.go:1\n\tx\"\\\/\b\f\r"`, `"\u0041"`, `"\u00"`, `"\ud800"`, `"\q"`, `"\`, `"\"`, `"\\"`,
		`"\\\""`, `"a"b`, `7`, `{}`, `null`, "\"\n\"", "\"\x1f\"", "\"\xff\"", ` "x" `, ``,
		`"` + strings.Repeat("b", lockrecord.MaxBacktraceBytes) + `"`,
		`"` + strings.Repeat("b", lockrecord.MaxBacktraceBytes+1) + `"`,
		`"` + strings.Repeat(`\n`, lockrecord.MaxBacktraceBytes-1) + `"`,
		`"a","backtrace":"\x"`, `"\x","backtrace":"a"`,
		`"","note":"\"backtrace\":\"x\""`, `"","\"backtrace":"x"`, `"","deep":{"backtrace":"x"}`,
		`"` + strings.Repeat("b", lockrecord.MaxRecordBytes) + `"`,
	} {
		f.Add(`{"owner":"x","backtrace":`+backtrace+`,"team":"core"}`, "note", "x")
	}
	for _, document := range []string{
		``, `{}`, ` { "a" : 1 } `, `{}x`, `[]`, `null`, "\ufeff{}", `{"a":1,"a":2}`, `{"a":NaN}`,
	} {
		f.Add(document, "team", "core")
	}
	for _, field := range []string{
		"owner", "pid", "alive", "backtrace", "asked", "uuid", "alert_at", "lock_delay", "a",
	} {
		f.Add(`{"a":1}`, field, strings.Repeat("1", 900)+strings.Repeat("é ", 1000))
		f.Add(`{"a":1}`, field, strings.Repeat("1", 3000)+"\xff")
		f.Add(`{"a":1}`, field, "\xff"+strings.Repeat("2", 20<<10))
	}
	f.Fuzz(func(t *testing.T, document, field, value string) {
		fields := []metadata.Field{{Name: lockrecord.FieldMetadata, Value: document, ModRevision: 7}}
		if field != lockrecord.FieldMetadata {
			fields = append(fields, metadata.Field{Name: field, Value: value, ModRevision: 7})
		}
		whole := lockrecord.Decode("a", fields).Record
		if diff := cmp.Diff(whole, lockrecord.DecodeRecord("a", fields)); diff != "" {
			t.Errorf("%q, %s %q (-Decode +DecodeRecord):\n%s", document, field, value, diff)
		}
		for i := range fields {
			fields[i] = lockrecord.Brief(fields[i])
			if again := lockrecord.Brief(fields[i]); again != fields[i] {
				t.Errorf("%q: brief is %q, and again %q", value, fields[i].Value, again.Value)
			}
		}
		if diff := cmp.Diff(whole, lockrecord.DecodeRecord("a", fields)); diff != "" {
			t.Errorf("%q, %s %q (-Decode +kept):\n%s", document, field, value, diff)
		}
	})
}

func hasProblem(d metadata.FullRecord, field, text string) bool {
	return slices.ContainsFunc(d.Problems, func(p metadata.Problem) bool { return p.Field == field && p.Text == text })
}
