package cli

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestHelpDescribesEveryMemberOfOwnJSON(t *testing.T) {
	for help, of := range map[string]any{
		changeMembers: eventJSON{}, periodMembers: periodJSON{}, taskMembers: taskJSON{},
	} {
		var described, printed []string
		for line := range strings.Lines(help) {
			names, _, _ := strings.Cut(strings.TrimSpace(line), "  ")
			described = append(described, strings.Split(names, ", ")...)
		}
		for _, f := range reflect.VisibleFields(reflect.TypeOf(of)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			printed = append(printed, name)
		}
		if !slices.Equal(described, printed) {
			t.Errorf("help json describes %q, but printed are %q", described, printed)
		}
	}
}
