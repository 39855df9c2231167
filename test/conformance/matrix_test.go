//go:build conformance

package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Marks around the matrix in a page that has more than that.
const (
	matrixBegins = "<!-- The matrix, written by `make conformance MATRIX=FILE`. -->\n"
	matrixEnds   = "<!-- The end of the matrix. -->\n"
)

// write writes the matrix as Markdown: into the page between its marks, or as a file of its own.
func (m *matrix) write(t *testing.T, file string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	page, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		page = []byte(matrixBegins + matrixEnds)
	} else if err != nil {
		t.Error(err)
		return
	}
	before, rest, found := strings.Cut(string(page), matrixBegins)
	_, after, closed := strings.Cut(rest, matrixEnds)
	if !found || !closed {
		t.Errorf("%s is a page without the marks of the matrix", file)
		return
	}
	content := before + matrixBegins + m.markdown() + matrixEnds + after
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Error(err)
	}
}

// markdown has a table of what each client does alone, and one of pairs: how long each check took, in seconds.
func (m *matrix) markdown() string {
	var alone, both []check
	counts := map[string]int{}
	for _, c := range checks() {
		for _, result := range m.cells[c.name] {
			counts[result]++
		}
		switch {
		case m.cells[c.name] == nil:
		case c.pair != nil:
			both = append(both, c)
		default:
			alone = append(alone, c)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s, commit %s, %d CPUs of %s: %d passed, %d failed, %d not claimed, in %.0f minutes.\n",
		m.began.UTC().Format(time.DateOnly), commit(), runtime.NumCPU(), runtime.GOARCH, counts["ok"], counts["FAILED"],
		counts["not claimed"], time.Since(m.began).Minutes())
	b.WriteString("\n| each client, seconds |")
	for _, c := range m.clients {
		fmt.Fprintf(&b, " %s |", c.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("--:|", len(m.clients)) + "\n")
	for _, c := range alone {
		fmt.Fprintf(&b, "| %s |", c.name)
		for _, one := range m.clients {
			fmt.Fprintf(&b, " %s |", m.cell(c.name, one.name))
		}
		b.WriteString("\n")
	}
	if len(both) > 0 {
		b.WriteString("\n| pairs, seconds |")
		for _, c := range both {
			fmt.Fprintf(&b, " %s |", c.name)
		}
		b.WriteString("\n|---|" + strings.Repeat("--:|", len(both)) + "\n")
	}
	for _, p := range pairs(m.clients, true) {
		label := p[0].name + "+" + p[1].name
		line, any := "", false
		for _, c := range both {
			line += " " + m.cell(c.name, label) + " |"
			any = any || m.cells[c.name][label] != ""
		}
		if any { // else its other order has them all
			fmt.Fprintf(&b, "| %s |%s\n", label, line)
		}
	}
	return b.String() + "\n"
}

// cell is how long a check took, or why there is no time.
func (m *matrix) cell(name, label string) string {
	switch result := m.cells[name][label]; result {
	case "ok":
		return fmt.Sprintf("%.1f", m.took[name][label].Seconds())
	case "not claimed":
		return "–"
	default:
		return cmp.Or(result, "")
	}
}

// commit is what was checked.
func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short=10", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
