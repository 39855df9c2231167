package lockjson_test

import (
	"flag"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

var update = flag.Bool("update", false, "write the tables of docs/json.md")

func TestEveryMemberIsDescribedOnce(t *testing.T) {
	for _, s := range lockjson.Shapes() {
		var described []string
		for _, l := range s.Lines {
			described = append(described, strings.Split(l.Members, ", ")...)
		}
		slices.Sort(described)
		members := members(reflect.TypeOf(s.Of))
		slices.Sort(members)
		if !slices.Equal(described, members) {
			t.Errorf("%s: the members are\n%v, and described are\n%v", s.Title, members, described)
		}
	}
}

// members are the names of the members of the type, without those of an embedded lock, which has a section of its own.
// A time stands for its distance in seconds, which follows it.
func members(shape reflect.Type) []string {
	var names []string
	for i := range shape.NumField() {
		f := shape.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		time, distance := strings.CutSuffix(name, "_in_seconds")
		switch {
		case f.Type == reflect.TypeFor[lockjson.Lock]():
		case f.Anonymous:
			names = append(names, members(f.Type)...)
		case distance && i > 0 && names[len(names)-1] == time:
		default:
			names = append(names, name)
		}
	}
	return names
}

// table is a shape in Markdown.
func table(s lockjson.Shape) string {
	var b strings.Builder
	b.WriteString("| Member | Meaning |\n|---|---|\n")
	for _, l := range s.Lines {
		fmt.Fprintf(&b, "| `%s` | %s |\n", strings.ReplaceAll(l.Members, ", ", "`, `"), l.Text)
	}
	return b.String()
}

func TestDocumentedMembersMatchTheProgram(t *testing.T) {
	tables := map[string]string{}
	for _, s := range lockjson.Shapes() {
		tables[s.Title] = table(s)
	}
	proctest.DocumentedTables(t, "../../docs/json.md", *update, tables)
}

// The lists agree: what needs a person first is the state of the whole.
func TestTheStateOfAWholeLockIsTheMostUrgent(t *testing.T) {
	for _, one := range staleness.States() {
		for _, other := range staleness.States() {
			want := one
			if other.Urgency() < one.Urgency() {
				want = other
			}
			whole := lockjson.NewAggregate("pool", []*locks.Row{row(t, one), row(t, other)},
				&locks.WaitSummary{}, time.Time{})
			if *whole.State != want {
				t.Errorf("of holders that are %s and %s the state is %s, want %s", one, other, *whole.State, want)
			}
		}
	}
}

// row returns a hold in the state.
func row(t *testing.T, state metadata.State) *locks.Row {
	now := time.Now()
	r := &metadata.Record{UUID: "u", Token: 1, AlertAt: now.Add(time.Hour), AutoUnlockAt: now.Add(time.Hour)}
	switch state {
	case metadata.StateAlerting:
		r.AlertAt = now
	case metadata.StateAbandoned:
		r.Death = &metadata.Statement{}
	case metadata.StateExpired:
		r.AutoUnlockAt = now
	case metadata.StateMalformed:
		r.AutoUnlockAt = time.Time{}
	}
	row := locks.NewRow(r, &diagnosis.CombinedPolicy{}, staleness.Moment{Wall: now}, &locks.WaitSummary{}, "")
	if row.State != state {
		t.Fatalf("a row is %s, want %s", row.State, state)
	}
	return row
}
