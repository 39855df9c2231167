// Package docs holds the documentation to what it shows: the tutorial runs, and every block of Go compiles.
package docs

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
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

// blocks reads the fenced blocks of a page, in their order.
func blocks(t *testing.T, page string) (found []block) {
	t.Helper()
	content, err := os.ReadFile(page)
	proctest.Must(t, err)
	fence := regexp.MustCompile("(?ms)^(?:<!-- ([^\n]*) -->\n)?[ \t]*```(\\w*)[^\n]*\n(.*?)^[ \t]*```$")
	for _, at := range fence.FindAllSubmatchIndex(content, -1) {
		b := block{language: string(content[at[4]:at[5]]), text: string(content[at[6]:at[7]])}
		b.line = 1 + bytes.Count(content[:at[6]], []byte("\n"))
		if at[2] >= 0 {
			b.note = string(content[at[2]:at[3]])
		}
		found = append(found, b)
	}
	if fences := bytes.Count(content, []byte("```")); fences != 2*len(found) {
		t.Fatalf("%s has %d fences, and %d blocks", page, fences, len(found))
	}
	return found
}
