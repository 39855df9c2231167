package staleness_test

import (
	"cmp"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	. "github.com/clustermutex/unlocker/pkg/staleness"
)

// The states in docs/protocol/vectors.json assume no default policy. Package metadata checks how the records decode.
func TestVectorsOfStates(t *testing.T) {
	file, err := os.ReadFile("../../docs/protocol/vectors.json")
	proctest.Must(t, err)
	var vectors struct{ Records, Statements []vector }
	proctest.Must(t, json.Unmarshal(file, &vectors))
	seen := map[State]bool{}
	for _, c := range slices.Concat(vectors.Records, vectors.Statements) {
		t.Run(c.About, func(t *testing.T) {
			r := c.record()
			for _, s := range c.States {
				seen[s.State] = true
				if v := Judge(r, Policy{}, Moment{Wall: s.At.Time}); v.State != s.State {
					t.Errorf("at %s it is %s, want %s", metadata.FormatTime(s.At.Time), v.State, s.State)
				}
			}
		})
	}
	for _, s := range States() {
		if !seen[s] {
			t.Errorf("no vector shows the state %s", s)
		}
	}
}

// vector is a record, or one with the statement of a witness.
type vector struct {
	About, Lock string
	Fields      []struct {
		Name, Value string
		Bytes       []byte `json:"value_base64"`
		ModRevision int64  `json:"mod_revision"`
	}
	Foreign     []string
	Key, Value  string
	ModRevision int64 `json:"mod_revision"`
	States      []struct {
		At    metadata.Time
		State State
	}
}

func (v vector) record() *metadata.Record {
	var fields []metadata.Field
	for _, f := range v.Fields {
		revision := cmp.Or(f.ModRevision, 7)
		fields = append(fields, metadata.Field{Name: f.Name, Value: f.Value + string(f.Bytes), CreateRevision: revision,
			ModRevision: revision})
	}
	d := lockrecord.Decode(v.Lock, fields, v.Foreign...)
	var st metadata.Statement
	if v.Key == "" || len(v.Value) > lockrecord.MaxStatementBytes || json.Unmarshal([]byte(v.Value), &st) != nil {
		return &d.Record
	}
	st.Revision = v.ModRevision
	if strings.Contains(v.Key, "/.deaths/") {
		lockrecord.AttachStatements(&d.Record, &st, nil)
	} else {
		lockrecord.AttachStatements(&d.Record, nil, &st)
	}
	return &d.Record
}
