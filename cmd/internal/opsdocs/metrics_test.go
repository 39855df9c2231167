package opsdocs

import (
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

const metricsPage = "docs/metrics.md"

func TestDocumentedMetricsMatchThePrograms(t *testing.T) {
	got := scrapes(t)
	for program, all := range got {
		// promtool check metrics
		problems, err := promlint.NewWithMetricFamilies(slices.Collect(maps.Values(all))).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("%s: %v, %v", program, problems, err)
		}
	}
	proctest.DocumentedTables(t, top+metricsPage, *update, map[string]string{
		"unlocker and mutexdash": table(got, "unlocker", "mutexdash"), "unlocker": table(got, "unlocker"),
		"unlocker witness": table(got, "witness"), "mutexdash": table(got, "mutexdash"),
	})
}

// table has the metrics that these programs export alike, or those that are of one program alone.
func table(got map[string]families, programs ...string) string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(got[programs[0]])) {
		names := "`" + name + "`"
		says := meaning(got[programs[0]][name])
		other := counterpart(name)
		shared := sameIn(got, other, says)
		if shared != (len(programs) == 2) {
			continue
		}
		if shared {
			names += ", `" + other + "`"
		}
		fmt.Fprintf(&b, "| %s | %s |\n", names, says)
	}
	return b.String()
}

// meaning is the type of a metric, its labels and what it says.
func meaning(f *dto.MetricFamily) string {
	return strings.ToLower(f.GetType().String()) + " | " + labels(f) + " | " + f.GetHelp()
}

// counterpart is what the unlocker's metric is called at the dashboard, and the other way round.
func counterpart(name string) string {
	if rest, ok := strings.CutPrefix(name, "unlocker_"); ok {
		return "mutexdash_" + rest
	}
	return strings.Replace(name, "mutexdash_", "unlocker_", 1)
}

// sameIn reports whether a program exports a metric with this meaning.
func sameIn(got map[string]families, name, want string) bool {
	for _, all := range got {
		if f := all[name]; f != nil && meaning(f) == want {
			return true
		}
	}
	return false
}

// labels names the labels, with their values where those are words of ours that are all there from the beginning.
func labels(f *dto.MetricFamily) string {
	values := map[string][]string{}
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			values[l.GetName()] = append(values[l.GetName()], l.GetValue())
		}
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		text := "`" + name + "`"
		ofLocks := name == "state" && values["lock"] != nil // those that the locks happen to have
		if !ofLocks && slices.Contains([]string{"state", "result", "reason", "ended", "alarm", "type",
			"certainty", "cause", "error"}, name) {
			words := slices.Compact(slices.Sorted(slices.Values(values[name])))
			text += " = " + strings.Join(words, ", ")
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// known are the metrics of the page, with their types and labels.
func known(t *testing.T) map[string]metric {
	t.Helper()
	all := map[string]metric{}
	for line := range strings.Lines(read(t, metricsPage)) {
		cells := strings.Split(line, " | ")
		if len(cells) < 4 || !strings.HasPrefix(line, "| `") {
			continue
		}
		m := metric{kind: cells[1], labels: map[string]bool{}}
		for label := range strings.SplitSeq(cells[2], "; ") {
			name, _, _ := strings.Cut(label, " = ")
			m.labels[strings.Trim(name, "` ")] = true
		}
		for name := range strings.SplitSeq(strings.TrimPrefix(cells[0], "| "), ", ") {
			all[strings.Trim(name, "`")] = m
		}
	}
	if len(all) < 40 {
		t.Fatalf("%s has only %d metrics", metricsPage, len(all))
	}
	return all
}

type metric struct {
	kind   string
	labels map[string]bool
}

// A metric that no scrape of the test shows is found in the source: every name that a program registers is on the page.
func TestEveryMetricIsDocumented(t *testing.T) {
	all := known(t)
	registered := regexp.MustCompile(`(?:Name:|NewDesc\(|\bd\(|\.(?:gauge|counter)\(|ofHolder\(to,)\s*"([a-z0-9_]+)"`)
	found := 0
	for _, dir := range []string{"internal", "cmd/internal", "pkg/sweeper"} {
		err := filepath.WalkDir(top+dir, func(file string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			source := read(t, strings.TrimPrefix(filepath.ToSlash(file), top))
			if !strings.Contains(source, "prometheus/client_golang") {
				return nil
			}
			for _, name := range registered.FindAllStringSubmatch(source, -1) {
				found++
				if !slices.ContainsFunc([]string{"", "unlocker_", "mutexdash_", "unlocker_witness_"},
					func(namespace string) bool { return all[namespace+name[1]].kind != "" }) {
					t.Errorf("%s has a metric %s, which %s does not list", file, name[1], metricsPage)
				}
			}
			return nil
		})
		proctest.Must(t, err)
	}
	if found < len(all)/2 {
		t.Errorf("only %d names are found in the source", found)
	}
}
