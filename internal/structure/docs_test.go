package structure_test

import (
	"go/ast"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"
)

// Links inside the documentation lead somewhere, headings included.
func TestDocumentationLinksWork(t *testing.T) {
	pages := glob(t, 10, "*.md", "*/*.md", "*/*/*.md")
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, page := range pages {
		for _, found := range link.FindAllStringSubmatch(read(t, page), -1) {
			target, heading, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := page
			if target != "" {
				file = path.Join(path.Dir(page), target)
			}
			if _, err := fs.Stat(top, file); err != nil {
				t.Errorf("%s links to %s: %v", page, found[1], err)
			} else if heading != "" && !headings(read(t, file))[heading] {
				t.Errorf("%s links to %s, which lacks this heading", page, found[1])
			}
		}
	}
}

func TestReadmeSaysHowToRunAndTest(t *testing.T) {
	for _, command := range []string{"go run ./cmd/mutexdev ", "go test ./... "} {
		if !strings.Contains(read(t, "README.md"), "\n"+command) {
			t.Errorf("README.md does not name %s", command)
		}
	}
}

// Every page of the documentation can be reached from the index.
func TestEveryPageIsInTheIndex(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]+\.md)`)
	found := map[string]bool{}
	next := []string{"docs/README.md"}
	for len(next) > 0 {
		page := next[0]
		next = next[1:]
		if found[page] {
			continue
		}
		found[page] = true
		for _, to := range link.FindAllStringSubmatch(read(t, page), -1) {
			ours, whole := strings.CutPrefix(to[1], "https://github.com/clustermutex/unlocker/blob/main/")
			switch {
			case whole: // as on the pages of packages
				next = append(next, ours)
			case !strings.Contains(to[1], "://"):
				next = append(next, path.Join(path.Dir(page), to[1]))
			}
		}
	}
	for _, page := range glob(t, 15, "docs/*.md", "docs/*/*.md", "clients/*/*.md") {
		if !found[page] {
			t.Errorf("no link leads from docs/README.md to %s", page)
		}
	}
}

// headings are the anchors that a page gets.
func headings(page string) map[string]bool {
	anchors := map[string]bool{}
	dropped := regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
	for line := range strings.Lines(page) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			title = dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			anchors[strings.ReplaceAll(title, " ", "-")] = true
		}
	}
	return anchors
}

// The documentation names tests as evidence. Each of them exists.
func TestTestsNamedInTheDocumentationExist(t *testing.T) {
	tests := map[string]bool{}
	for _, f := range goFiles(t) {
		for _, d := range f.tree.Decls {
			if function, ok := d.(*ast.FuncDecl); ok && strings.HasSuffix(f.name, "_test.go") {
				tests[function.Name.Name] = true
			}
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w+)")
	for _, page := range glob(t, 5, "docs/*.md") {
		for _, found := range named.FindAllStringSubmatch(read(t, page), -1) {
			if !tests[found[1]] {
				t.Errorf("%s names %s, which is not a test", page, found[1])
			}
		}
	}
}

// reference are the pages in which somebody looks one thing up: they may be longer than what is read from top to
// bottom.
func reference() map[string]bool {
	return map[string]bool{
		"docs/flags.md": true, "docs/metrics.md": true, "docs/mutexctl.md": true, // written by make docs
		"docs/runbooks.md": true, "docs/protocol/operators.md": true,
	}
}

// A page first says whom it is for, and takes at most 15 minutes to read. The bars of tables and code are not words.
func TestPagesNameTheirReadersAndStayShort(t *testing.T) {
	words := regexp.MustCompile(`\S*[\pL\pN]\S*`)
	code := regexp.MustCompile("(?s)```.*?```")
	for _, page := range glob(t, 15, "docs/*.md", "docs/protocol/*.md", "docs/howto/*.md") {
		text := read(t, page)
		_, beginning, _ := strings.Cut(text, "\n\n")
		generated := strings.HasPrefix(beginning, "<!--")
		if !generated && path.Base(page) != "README.md" && page != "docs/tutorial.md" &&
			!strings.HasPrefix(beginning, "For ") && !strings.HasPrefix(beginning, "**Goal.** ") {
			t.Errorf("%s does not begin with whom it is for", page)
		}
		most := 2500
		if page == "docs/protocol.md" {
			most = 4000 // all that a client needs, so that its author needs no other
		}
		if n := len(words.FindAllString(code.ReplaceAllString(text, ""), -1)); n > most && !reference()[page] {
			t.Errorf("%s has %d words", page, n)
		}
	}
}

// The documentation uses the field's terms, not the ones that this project once invented, and no merge is left in it.
func TestDocumentationUsesTheFieldsTerms(t *testing.T) {
	dialect := regexp.MustCompile(`(?i)\b(can not|tells whether|on the ground of|deeds?|heed|gentle|bequeath|` +
		`claimless|unsay|restless|furnish|twins?|mend|patience|watchman|historian|vouch(es)?|chores?|a doubt)\b`)
	conflict := regexp.MustCompile(`^(<{7} |={7}$|>{7} )`)
	for _, page := range glob(t, 30, "*.md", "docs/*.md", "docs/*/*.md", "clients/*/*.md", "spec/*.md") {
		for i, line := range strings.Split(read(t, page), "\n") {
			if conflict.MatchString(line) {
				t.Errorf("%s:%d is of a merge: %s", page, i+1, line)
			}
			if word := dialect.FindString(line); word != "" {
				t.Errorf("%s:%d says %q", page, i+1, word)
			}
		}
	}
}
