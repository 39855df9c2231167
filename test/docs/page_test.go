// Package docs holds the documentation to what it shows: the tutorial runs, and every block of Go compiles.
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// programs are the binaries.
var programs *proctest.Programs

func TestMain(m *testing.M) {
	proctest.Overlap()
	os.Exit(proctest.Main(m, &programs, "mutexdev", "mutexctl"))
}

// top is the top of the repository.
var top = filepath.Join("..", "..")

// block is a fenced block of a page.
type block struct {
	language string
	text     string
	line     int    // of the first line of text, from 1
	note     string // the HTML comment on the line before the fence, which readers of the page do not see
}

var (
	fence   = regexp.MustCompile("^[ \t]*```(\\w*)")
	comment = regexp.MustCompile(`^<!-- (.*) -->$`)
)

// blocks reads the fenced blocks of a page, in their order.
func blocks(t *testing.T, page string) []block {
	t.Helper()
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var (
		found  []block
		open   *block
		before string
		number int
	)
	for line := range strings.Lines(string(content)) {
		number++
		opening := fence.FindStringSubmatch(line)
		switch {
		case open == nil && opening != nil:
			open = &block{language: opening[1], line: number + 1}
			if c := comment.FindStringSubmatch(strings.TrimSpace(before)); c != nil {
				open.note = c[1]
			}
		case open != nil && opening != nil:
			found = append(found, *open)
			open = nil
		case open != nil:
			open.text += line
		}
		before = line
	}
	if open != nil {
		t.Fatalf("%s:%d: the block is not closed", page, open.line)
	}
	return found
}
