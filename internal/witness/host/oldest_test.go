package host

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// oldestProof reports whether the oldest witness of version 1 takes the end of the process for the end of the hold. It
// is frozen: whatever the protocol adds, this reader does not know it.
func oldestProof(document map[string]any) bool {
	for _, needed := range []string{"pid", "boot_id", "process_start", "pid_namespace"} {
		if document[needed] == nil {
			return false
		}
	}
	return document["detached"] == nil
}

func TestOldestWitnessStatesNoDeathThatNeedsMoreProof(t *testing.T) {
	var vectors struct {
		Records []struct {
			About  string
			Fields []metadata.Field
		}
	}
	text, err := os.ReadFile("../../../docs/protocol/vectors.json")
	proctest.Must(t, err)
	proctest.Must(t, json.Unmarshal(text, &vectors))
	proven := map[bool]int{}
	for _, v := range vectors.Records {
		document := map[string]any{}
		for i, f := range v.Fields {
			v.Fields[i].CreateRevision = 7
			if f.Name == lockrecord.FieldMetadata {
				_ = json.Unmarshal([]byte(f.Value), &document) // some vectors are broken on purpose
			}
		}
		r := lockrecord.DecodeRecord("a", v.Fields)
		if r.Process == nil {
			continue
		}
		h, proof := Machine{BootID: r.Process.BootID}.hold(&r)
		hasCommand := h.holder.cgroup != 0
		if oldestProof(document) && (!proof || hasCommand) {
			t.Errorf("%s: the oldest witness states a death as soon as the process has ended", v.About)
		}
		if proof {
			proven[hasCommand]++
		}
	}
	if proven[false] == 0 || proven[true] == 0 {
		t.Errorf("holders with a provable end, by whether they have a command: %v", proven)
	}
}
