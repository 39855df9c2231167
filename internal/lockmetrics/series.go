package lockmetrics

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Series selects the locks that get series of their own.
type Series string

// The choices.
const (
	SeriesAlerting Series = "alerting" // those that need attention: in every state but held
	SeriesAll      Series = "all"
	SeriesNone     Series = "none"
)

// ParseSeries parses a choice.
func ParseSeries(s string) (Series, error) {
	switch choice := Series(s); choice {
	case SeriesAlerting, SeriesAll, SeriesNone:
		return choice, nil
	}
	return "", fmt.Errorf("%q is not one of alerting, all, none", s)
}

func (s Series) wants(state staleness.State) bool {
	return s == SeriesAll || s == SeriesAlerting && state != staleness.Held
}

// names reports whether any lock gets series of its own.
func (s Series) names() bool { return s == SeriesAll || s == SeriesAlerting }

// judged is a lock with its verdict.
type judged struct {
	record  *metadata.Record
	verdict staleness.Verdict
}

// overdue orders locks by how long their alert has been due, longest first.
func overdue(a, b judged) int {
	switch x, y := a.verdict.AlertAt, b.verdict.AlertAt; {
	case x.IsZero() != y.IsZero():
		if x.IsZero() {
			return 1
		}
		return -1
	case !x.Equal(y):
		return x.Compare(y)
	}
	return strings.Compare(a.record.Name, b.record.Name)
}

// shortlist keeps the most overdue of any number of locks, without sorting all of them.
type shortlist struct {
	limit  int
	offers int
	kept   []judged
	full   bool // the first limit of kept are sorted, and locks that sort after them are not worth keeping
}

func (s *shortlist) offer(j judged) {
	s.offers++
	if s.limit <= 0 || s.full && overdue(j, s.kept[s.limit-1]) >= 0 {
		return
	}
	if s.kept = append(s.kept, j); len(s.kept) >= 2*s.limit {
		s.trim()
		s.full = true
	}
}

func (s *shortlist) trim() {
	slices.SortFunc(s.kept, overdue)
	s.kept = s.kept[:min(len(s.kept), s.limit)]
}

// best returns the kept locks, most overdue first.
func (s *shortlist) best() []judged {
	s.trim()
	return s.kept
}
