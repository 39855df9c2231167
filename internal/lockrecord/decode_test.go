package lockrecord_test

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestDecodeIsBounded(t *testing.T) {
	many := func(member string) string {
		var members []string
		for i := range 100_000 {
			members = append(members, fmt.Sprintf(member, i))
		}
		return "{" + strings.Join(members, ",") + "}"
	}
	big := strings.Repeat("x", 1<<20)
	cases := map[string]metadata.Field{
		"a backtrace of 1 MiB":          {Name: "backtrace", Value: big},
		"an owner of 1 MiB":             {Name: "owner", Value: big},
		"a uuid of 1 MiB":               {Name: "uuid", Value: big},
		"a deadline of 1 MiB":           {Name: "alert_at", Value: big},
		"a number of a million digits":  {Name: "metadata", Value: `{"n":` + strings.Repeat("1", 1<<20) + `}`},
		"a member name of 1 MiB":        {Name: "metadata", Value: `{"` + big + `":1}`},
		"a document that is a big text": {Name: "metadata", Value: big},
		"1 MiB of opening brackets":     {Name: "metadata", Value: `{"a":` + strings.Repeat("[", 1<<20)},
		"a hundred thousand members":    {Name: "metadata", Value: many(`"m%d":1`)},
		"as many nested ones":           {Name: "metadata", Value: many(`"m%d":[]`)},
		"as many nulls":                 {Name: "metadata", Value: many(`"m%d":null`)},
	}
	for name, field := range cases {
		t.Run(name, func(t *testing.T) {
			d := lockrecord.Decode("a", []metadata.Field{field})
			checkBounds(t, d)
			if len(d.Problems) <= 3 && name != "as many nulls" {
				t.Errorf("only these problems: %v", d.Problems)
			}
			// TestDecodeRetainsNoLargeValue checks that it keeps nothing of the bytes it was read from.
			if b, err := json.Marshal(d.Record); err != nil || len(b) > 200<<10 {
				t.Errorf("the record keeps %d KiB, %v", len(b)>>10, err)
			}
		})
	}
	t.Run("ten thousand keys and as many foreign ones", func(t *testing.T) {
		var fields []metadata.Field
		var foreign []string
		for i := range 10_000 {
			fields = append(fields, metadata.Field{Name: fmt.Sprintf("f%d", i), Value: "x"})
			foreign = append(foreign, fmt.Sprintf("/mutexes/a/b/%d", i))
		}
		d := lockrecord.Decode("a", fields, foreign...)
		checkBounds(t, d)
		if !d.HasForeignKeys() || !hasProblem(d, "record", "9992 more keys fit no layout") {
			t.Errorf("problems: %v", d.Problems)
		}
	})
}

func TestDecodeRetainsNoLargeValue(t *testing.T) {
	const records = 50
	kept := make([]metadata.Record, 0, records)
	before := heap()
	for i := range records {
		padding := strings.Repeat("x", 1<<20)
		document := fmt.Sprintf(`{"owner":"billing","pid":%d,"purpose":"%s","n":"%s","team":"core"}`, i, padding,
			padding)
		d := lockrecord.Decode("a", []metadata.Field{
			{Name: "metadata", Value: document}, {Name: "alive", Value: padding + " page 3"},
			{Name: "uuid", Value: padding},
			{Name: "alert_at", Value: padding},
		}, "/mutexes/a/"+padding)
		kept = append(kept, d.Record)
	}
	if grown := heap() - before; grown > records*64<<10 {
		t.Errorf("%d records keep %d KiB each", len(kept), grown>>10/records)
	}
	runtime.KeepAlive(kept)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestDocumentIsOneObject(t *testing.T) {
	for document, want := range map[string]bool{
		`{}`: true, " {} \t\r\n": true, `{"a":1,"a":[2]}`: true,
		``: false, `null`: false, `[]`: false, `"{}"`: false, `{}{}`: false, `{}]`: false, `{},`: false, "{}\v": false,
		`{"a":1`: false, "\ufeff{}": false,
	} {
		d := lockrecord.Decode("a", []metadata.Field{{Name: "metadata", Value: document}})
		if refused := hasProblem(d, "metadata", "not a JSON object"); refused == want {
			t.Errorf("%q: refused %v", document, refused)
		}
	}
}

// What readers do not decode, they check all the same.
func TestControlCharactersAreFoundInUnreadBacktraces(t *testing.T) {
	for c := range 256 {
		if c == '"' || c == '\\' {
			continue
		}
		text := "main.go:1" + string([]byte{byte(c)}) + "main.go:2"
		r := lockrecord.DecodeRecord("a", []metadata.Field{{Name: "metadata", Value: `{"backtrace":"` + text + `"}`}})
		if refused := hasProblem(metadata.FullRecord{Record: r}, "metadata",
			"not a JSON object"); refused != (c < ' ') {
			t.Errorf("%q: refused %v", text, refused)
		}
	}
}

// The tables of the section on the record are what the protocol defines.
func TestReservedFieldsMatchTheProtocol(t *testing.T) {
	page, err := os.ReadFile("../../docs/protocol.md")
	proctest.Must(t, err)
	_, section, _ := strings.Cut(string(page), "\n## The record\n")
	keys, members, _ := strings.Cut(section, "\n**One key `metadata`**")
	members, _, _ = strings.Cut(members, "\n- A small client")
	for table, got := range map[string][]string{
		keys:    lockrecord.ReservedFields(lockrecord.OwnKey, lockrecord.KeyOfOthers),
		members: lockrecord.ReservedFields(lockrecord.Member),
	} {
		var want []string
		for _, row := range regexp.MustCompile("(?m)^\\| (`.*?`) \\|").FindAllStringSubmatch(table, -1) {
			want = append(want, strings.Split(strings.Trim(row[1], "`"), "`, `")...)
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("fields (-page +table):\n%s", diff)
		}
	}
}

// The protocol names each member of each document.
func TestProtocolDocumentsEveryMember(t *testing.T) {
	for section, document := range map[string]any{
		"queue.md\n## Ticket\n":               metadata.Ticket{},
		"witnesses.md\n## Statement\n":        metadata.Statement{},
		"operators.md\n### Ending\n":          metadata.Ending{},
		"operators.md\n### Presence\n":        metadata.Presence{},
		"operators.md\n### Request\n":         metadata.FinishRequest{},
		"operators.md\n### Acknowledgement\n": metadata.Acknowledgement{},
		"operators.md\n### Delay\n":           metadata.LockDelay{},
	} {
		page, heading, _ := strings.Cut(section, "\n")
		text, err := os.ReadFile("../../docs/protocol/" + page)
		proctest.Must(t, err)
		_, after, found := strings.Cut(string(text), "\n"+heading)
		about, _, _ := strings.Cut(after, "\n#")
		if !found {
			t.Errorf("%s has no section %q", page, heading)
		}
		for _, name := range members(reflect.TypeOf(document)) {
			if !strings.Contains(about, "`"+name+"`") {
				t.Errorf("%s, %q does not name %s", page, heading, name)
			}
		}
	}
}

// members are the names that a type has in JSON, those of what it embeds included.
func members(of reflect.Type) (names []string) {
	for i := range of.NumField() {
		field := of.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous:
			names = append(names, members(field.Type)...)
		case name != "" && name != "-":
			names = append(names, name)
		}
	}
	return names
}
