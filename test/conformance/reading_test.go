//go:build conformance

package conformance

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What the pages leave open to a driver, the suite has to take.

func TestAVerdictNamesItsHolderByItsUUID(t *testing.T) {
	for _, line := range []string{`{"holder":"u"}`, `{"holder":{"uuid":"u"}}`} {
		var a answer
		if err := json.Unmarshal([]byte(line), &a); err != nil || a.Holder == nil || a.Holder.UUID != "u" {
			t.Errorf("%s is read as %+v, %v", line, a.Holder, err)
		}
	}
	var nobody answer
	if err := json.Unmarshal([]byte(`{"holder":null}`), &nobody); err != nil || nobody.Holder != nil {
		t.Errorf("null is read as %+v, %v", nobody.Holder, err)
	}
}

func TestOnlyTheOrderOfOtherFieldsDoesNotMatter(t *testing.T) {
	body := func(keys ...string) any {
		var operations []any
		for _, key := range keys {
			operations = append(operations, map[string]any{"request_put": map[string]any{"key": key}})
		}
		operations = append(operations, map[string]any{"request_delete_range": map[string]any{}})
		return inOneOrder(map[string]any{"success": operations})
	}
	want := body("uuid", "alert_at", "auto_unlock_at", "locked_at", "hostname")
	if diff := cmp.Diff(want, body("uuid", "alert_at", "auto_unlock_at", "hostname", "locked_at")); diff != "" {
		t.Errorf("other fields in another order (-want +got):\n%s", diff)
	}
	for _, other := range []any{
		body("alert_at", "uuid", "auto_unlock_at", "locked_at", "hostname"),
		body("uuid", "alert_at", "auto_unlock_at", "locked_at"),
		body("uuid", "alert_at", "auto_unlock_at", "locked_at", "purpose"),
	} {
		if cmp.Equal(want, other) {
			t.Errorf("%v passes for %v", other, want)
		}
	}
}
