package opsdocs

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ofTargets are the labels that Prometheus gives to what it scrapes, and that its own metrics about it have.
func ofTargets() []string { return []string{"job", "instance", "namespace", "cluster"} }

var (
	metricName = regexp.MustCompile(`\b(?:unlocker|mutexdash)_[a-z0-9_]+`)
	selector   = regexp.MustCompile(`\b((?:unlocker|mutexdash)_[a-z0-9_]+)\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)\s*"`)
	grouping   = regexp.MustCompile(`\b(?:by|on|group_left)\s*\(([^)]*)\)`)
	made       = regexp.MustCompile(`label_replace\((?:\s*\{[^}]*\})?[^"]*"([a-z_]+)"`)
)

// checkQuery checks that a query uses only metrics and labels that exist.
func checkQuery(t *testing.T, all map[string]metric, where, query string) {
	t.Helper()
	names := metricName.FindAllString(query, -1)
	labels := map[string]bool{"le": true}
	for _, label := range ofTargets() {
		labels[label] = true
	}
	for _, found := range made.FindAllStringSubmatch(query, -1) {
		labels[found[1]] = true
	}
	for _, name := range names {
		m, ok := all[familyOf(all, name)]
		if !ok {
			t.Errorf("%s: unknown metric %s", where, name)
			continue
		}
		maps.Copy(labels, m.labels)
	}
	for _, found := range selector.FindAllStringSubmatch(query, -1) {
		m := all[familyOf(all, found[1])]
		for _, label := range matcher.FindAllStringSubmatch(found[2], -1) {
			if !m.labels[label[1]] && !slices.Contains(ofTargets(), label[1]) {
				t.Errorf("%s: %s has no label %s", where, found[1], label[1])
			}
		}
	}
	for _, found := range grouping.FindAllStringSubmatch(query, -1) {
		for label := range strings.SplitSeq(found[1], ",") {
			if label = strings.TrimSpace(label); label != "" && !labels[label] {
				t.Errorf("%s: nothing there has the label %s", where, label)
			}
		}
	}
}

// familyOf is the name of the metric that a sample belongs to.
func familyOf(all map[string]metric, name string) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, suffix); ok && all[base].kind == "histogram" {
			return base
		}
	}
	return name
}
