package staleness_test

import (
	"cmp"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/pkg/metadata"
	. "github.com/clustermutex/unlocker/pkg/staleness"
)

// The states in docs/protocol/vectors.json are those without a default policy. What the records decode to is checked in
// package metadata.
func TestVectorsOfStates(t *testing.T) {
	file, err := os.ReadFile("../../docs/protocol/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors struct {
		Records []struct {
			About, Lock string
			Fields      []struct {
				Name, Value string
				Bytes       []byte `json:"value_base64"`
				ModRevision int64  `json:"mod_revision"`
			}
			Foreign []string
			States  []struct {
				At    metadata.Time
				State State
			}
		}
		Statements []struct {
			About, Lock string
			Fields      []struct {
				Name, Value string
				ModRevision int64 `json:"mod_revision"`
			}
			Key, Value  string
			ModRevision int64 `json:"mod_revision"`
			States      []struct {
				At    metadata.Time
				State State
			}
		}
	}
	if err := json.Unmarshal(file, &vectors); err != nil {
		t.Fatal(err)
	}
	seen := map[State]bool{}
	for _, c := range vectors.Statements {
		t.Run(c.About, func(t *testing.T) {
			var fields []metadata.Field
			for _, f := range c.Fields {
				revision := cmp.Or(f.ModRevision, 7)
				fields = append(fields, metadata.Field{Name: f.Name, Value: f.Value, CreateRevision: revision,
					ModRevision: revision})
			}
			d := metadata.Decode(c.Lock, fields)
			var st metadata.Statement
			if len(c.Value) <= metadata.MaxStatementBytes && json.Unmarshal([]byte(c.Value), &st) == nil {
				st.Revision = c.ModRevision
				if strings.Contains(c.Key, "/.deaths/") {
					d.Heed(&st, nil)
				} else {
					d.Heed(nil, &st)
				}
			}
			for _, s := range c.States {
				seen[s.State] = true
				if v := Judge(&d.Record, Policy{}, Moment{Wall: s.At.Time}); v.State != s.State {
					t.Errorf("at %s it is %s, want %s", metadata.FormatTime(s.At.Time), v.State, s.State)
				}
			}
		})
	}
	for _, c := range vectors.Records {
		t.Run(c.About, func(t *testing.T) {
			var fields []metadata.Field
			for _, f := range c.Fields {
				revision := cmp.Or(f.ModRevision, 7)
				fields = append(fields, metadata.Field{
					Name: f.Name, Value: f.Value + string(f.Bytes), CreateRevision: revision, ModRevision: revision,
				})
			}
			d := metadata.Decode(c.Lock, fields, c.Foreign...)
			for _, s := range c.States {
				seen[s.State] = true
				if v := Judge(&d.Record, Policy{}, Moment{Wall: s.At.Time}); v.State != s.State {
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
