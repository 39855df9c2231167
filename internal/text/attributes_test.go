package text_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/text"
)

func TestAttributesBecomeLabelsInOneOrder(t *testing.T) {
	a := text.NewAttributes(map[string]string{"team": "team", "service": "app", "size": "rows"})
	if want := []string{"service", "size", "team"}; !slices.Equal(a.Labels(), want) {
		t.Errorf("labels %q, want %q", a.Labels(), want)
	}
	got := a.Values(map[string]any{"team": "pay\u202ements\n" + strings.Repeat("x", 200), "rows": json.Number("12"),
		"secret": "x"})
	if len(got) != 3 || got[0] != "" || got[1] != "12" || !strings.HasPrefix(got[2], "pay\ufffdments\ufffdxx") ||
		len(got[2]) > 128 {
		t.Errorf("values %q", got)
	}
	if got := (text.Attributes{}).Values(map[string]any{"team": "a"}); len(got) != 0 {
		t.Errorf("attributes that nobody named are the labels %q", got)
	}
}
