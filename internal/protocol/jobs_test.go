package protocol_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
)

func TestTasksHaveNamesThatShareNoLock(t *testing.T) {
	for _, c := range []struct{ about, set, task, want string }{
		{"a set and a task", "invoices", "42", ""},
		{"a task like a path", "invoices", "2026/42", ""},
		{"no set", "", "42", "the name of the set of tasks is empty"},
		{"no task", "invoices", "", "the name of the task is empty"},
		{"a set with a slash", "invoices/2026", "42", `the set of tasks "invoices/2026" has a slash in its name`},
		{"a line feed", "invoices", "4\n2", "the lock name contains a control character"},
		{"too long together", "invoices", strings.Repeat("x", 248),
			"the lock name has 257 bytes, at most 256 are allowed"},
	} {
		t.Run(c.about, func(t *testing.T) {
			got := ""
			if err := protocol.CheckTask(c.set, c.task); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestPeriodsSortByTheirBeginning(t *testing.T) {
	var values []string
	for _, start := range []time.Time{time.Unix(9, 0), time.Unix(10, 0), time.Unix(10, 2e8), time.Unix(10, 25e7),
		time.Unix(11, 0)} {
		for _, words := range []string{"", "taken by z", "~"} {
			values = append(values, protocol.FormatPeriod(protocol.Period{Start: start, Words: words}))
		}
	}
	if !slices.IsSorted(values) {
		t.Errorf("%q", values)
	}
	p, err := protocol.ParsePeriod(values[7])
	if err != nil || !p.Start.Equal(time.Unix(10, 2e8)) || p.Words != "taken by z" {
		t.Errorf("%q is %+v, %v", values[7], p, err)
	}
	for _, value := range []string{"", "soon", "2019-03-27 taken", "1553682600taken"} {
		if p, err := protocol.ParsePeriod(value); err == nil {
			t.Errorf("%q is read as %+v", value, p)
		}
	}
}

func TestUnlistedAreasStandInTheOrderOfKeys(t *testing.T) {
	if areas := layout(t).Unlisted(); !slices.IsSorted(areas) || slices.Contains(areas, layout(t).Queues()) ||
		slices.Contains(areas, layout(t).Unlockers()) {
		t.Errorf("%q", areas)
	}
}
