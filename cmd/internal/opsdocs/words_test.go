package opsdocs

import (
	"slices"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// States and endings have one word each. What operators read has all of them, and no other.
func TestOperatorTextsUseTheTermsForStatesAndEndings(t *testing.T) {
	var judged []metadata.State
	for _, s := range metadata.States() {
		if s.State != metadata.StateExpiring { // which is held, too
			judged = append(judged, s.State)
		}
	}
	if !slices.Equal(judged, staleness.States()) {
		t.Errorf("locks are judged to be %v, and there are words for %v", staleness.States(), judged)
	}
	page := read(t, "docs/dashboard.md")
	board := read(t, "deploy/grafana/locks.json")
	named := map[string]bool{}
	for _, r := range rules(t) {
		named[r.Alert] = true
	}
	for _, s := range staleness.States() {
		if !strings.Contains(page, "*"+string(s)+"*") {
			t.Errorf("docs/dashboard.md does not name *%s*", s)
		}
		if !strings.Contains(board, `"options": "`+string(s)+`"`) {
			t.Errorf("the board of locks has no colour for %s", s)
		}
		if alert := alertOf(string(s)); s != metadata.StateHeld && !named[alert] {
			t.Errorf("unknown alert %s", alert)
		}
	}
	for _, e := range metadata.Endings() {
		if !strings.Contains(board, `"options": "`+e.Word+`"`) {
			t.Errorf("the board of locks has no colour for %s", e.Word)
		}
		if e.Cause != e.Word && strings.Contains(board, `"`+e.Cause+`"`) {
			t.Errorf("the board of locks says %s, not %s", e.Cause, e.Word)
		}
	}
	autoUnlocked, _ := metadata.EndingWordsFor(metadata.EndingAutoUnlocked)
	for _, word := range []string{string(metadata.StateUnclaimed), autoUnlocked.Word} {
		if !named[alertOf(word)] {
			t.Errorf("unknown alert %s", alertOf(word))
		}
	}
}

// alertOf is the alert about locks of which this is said.
func alertOf(word string) string {
	name := "UnlockerLock"
	for part := range strings.SplitSeq(word, "-") {
		name += strings.ToUpper(part[:1]) + part[1:]
	}
	return name
}
