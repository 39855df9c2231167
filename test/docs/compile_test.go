package docs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// ofTheClient is what the pages on the client library and the how-tos take for granted.
const ofTheClient = `
	var (
		ctx       context.Context
		endpoints []string
		etcd      *clientv3.Client
		locks     *mutex.Client
		l         *mutex.Lock
		inspector *inspect.Inspector
		info      *inspect.LockInfo
		logger    *slog.Logger
		registry  *prometheus.Registry
		batches   []string
		version   string
		tick      time.Time
	)
	func index(context.Context, string)
	func send(ctx context.Context, data string) error
	func sendInvoices(ctx context.Context, locks *mutex.Client, send func(customer int)) error
	var add, build, list, migrate, publish, reachDatabase, rebuild, report, run, schedule, sendAll, sendReport, test,
		transcode, transfer func(context.Context) error`

// given is what the fragments of a page take for granted, as declarations.
func given(page string) string {
	switch {
	case page == "README.md":
		return `
			var (
				ctx     context.Context
				tenants []string
			)
			func invoice(context.Context, string) error`
	case page == "docs/fencing.md":
		return `
			var (
				ctx   context.Context
				etcd  *clientv3.Client
				lock  *mutex.Lock
				db    *sql.DB
				token int64
				total int
				id    string
				url   string
				body  io.Reader
				mux   *http.ServeMux
				books http.Handler
			)`
	case page == "docs/migration.md":
		return `
			var (
				ctx     context.Context
				locks   *mutex.Client
				batches []string
			)
			func work(ctx context.Context, batch string) error
			func reindex(context.Context) error`
	case strings.HasPrefix(page, "docs/client"), strings.HasPrefix(page, "docs/howto/"):
		return ofTheClient
	}
	return ""
}

// packages are those that fragments name without importing them, by name.
func packages() map[string]string {
	byName := map[string]string{
		"clientv3": "go.etcd.io/etcd/client/v3",
	}
	for imported := range strings.FieldsSeq(`
		context database/sql errors fmt io log log/slog net/http os os/exec os/signal sync syscall testing
		testing/synctest time github.com/prometheus/client_golang/prometheus`) {
		byName[path.Base(imported)] = imported
	}
	for _, name := range []string{"fencing", "inspect", "jobs", "leader", "locktest", "metadata", "mutex", "mutexlog",
		"mutexmetrics"} {
		byName[name] = "github.com/clustermutex/unlocker/pkg/" + name
	}
	return byName
}

// Every block of Go in the documentation compiles: a file as it is, a fragment with what its page takes for granted. A
// fragment may leave variables unused, because it is part of something.
func TestDocumentedGoCompiles(t *testing.T) {
	t.Parallel()
	check := checker(t)
	findsErrors(t, check)
	found := 0
	for _, page := range pages(t) {
		for _, b := range blocks(t, filepath.Join(top, page)) {
			if b.language != "go" || b.note == "compiled in pkg/mutexotel" { // the tests of that module do it
				continue
			}
			found++
			if err := check(page, b); err != nil {
				t.Error(err)
			}
		}
	}
	if found < 15 {
		t.Errorf("only %d blocks of Go were found", found)
	}
}

// findsErrors checks the checker.
func findsErrors(t *testing.T, check func(page string, b block) error) {
	t.Helper()
	wanted := map[string]string{
		"l, err := locks.Lock(ctx, \"a\"":               "docs/client.md:7:",
		"ctx.Done()\n\nlocks.Lick(ctx, \"a\")":          "docs/client.md:9: locks.Lick undefined",
		"func f() { mutex.Nothing() }":                  "docs/client.md:7: undefined: mutex.Nothing",
		"package p\n\nfunc f() int {}":                  "docs/client.md:9: missing return",
		"package p\n\nimport \"os\"\n\nfunc f() {}":     "docs/client.md:9: \"os\" imported and not used",
		"l, err := locks.Lock(ctx, \"a\")\nreturn err":  "",
		"package p\n\nimport \"os\"\n\nvar _ = os.Args": "",
	}
	for text, want := range wanted {
		err := check("docs/client.md", block{text: text + "\n", line: 7})
		if got := fmt.Sprint(err); want == "" && err != nil || !strings.HasPrefix(got, cmp.Or(want, got)) {
			t.Errorf("%q: %s, want %q", text, got, want)
		}
	}
}

// pages are the pages of the repository, from its top.
func pages(t *testing.T) (found []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(top), ".", func(file string, d fs.DirEntry, err error) error {
		hidden := strings.HasPrefix(d.Name(), ".") && file != "."
		if d.IsDir() && (hidden || d.Name() == "node_modules" || d.Name() == "dist") {
			return fs.SkipDir
		}
		if path.Ext(file) == ".md" {
			found = append(found, file)
		}
		return err
	})
	proctest.Must(t, err)
	return found
}

// snippet is a block as a package of its own.
type snippet struct {
	files    []*ast.File
	fragment bool
}

// parse turns a block into a snippet. The block is a whole file, declarations, or statements, which become the body of
// a function.
func parse(fset *token.FileSet, page string, b block) (*snippet, error) {
	at := fmt.Sprintf("//line %s:%d\n", page, b.line)
	file := func(text string) (*ast.File, error) {
		return parser.ParseFile(fset, "", text, parser.SkipObjectResolution)
	}
	if strings.HasPrefix("\n"+b.text, "\npackage ") || strings.Contains(b.text, "\npackage ") {
		f, err := file(at + b.text)
		return &snippet{files: []*ast.File{f}}, err
	}
	text := at + b.text
	f, err := file("package p\n" + text)
	if err != nil {
		text = "func _() error {\n" + at + b.text + "\nreturn nil\n}\n"
		f, err = file("package p\n" + text)
	}
	if err != nil {
		return nil, err
	}
	granted, err := file("package p\n" + given(page))
	if err != nil {
		return nil, fmt.Errorf("what is given for %s: %w", page, err)
	}
	s := &snippet{fragment: true}
	for parsed, text := range map[*ast.File]string{f: text, granted: given(page)} {
		imported, err := file("package p\n" + imports(parsed) + text)
		if err != nil {
			return nil, err
		}
		s.files = append(s.files, imported)
	}
	return s, nil
}

// imports are the declarations for the packages that a file names.
func imports(f *ast.File) string {
	known := packages()
	named := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && known[x.Name] != "" {
				named[x.Name] = true
			}
		}
		return true
	})
	var b strings.Builder
	for name := range named {
		fmt.Fprintf(&b, "import %s %q\n", name, known[name])
	}
	return b.String()
}

// checker returns a function that reports what is wrong with a block. It knows the packages that pages name, as
// compiled by the tool chain.
func checker(t *testing.T) func(page string, b block) error {
	t.Helper()
	fset := token.NewFileSet()
	compiled := export(t)
	from := importer.ForCompiler(fset, "gc", func(imported string) (io.ReadCloser, error) {
		if compiled[imported] == "" {
			return nil, fmt.Errorf("the test does not know the package %s", imported)
		}
		return os.Open(compiled[imported])
	})
	return func(page string, b block) error {
		s, err := parse(fset, page, b)
		if err != nil {
			return err
		}
		var problems []error
		config := types.Config{Importer: from, Error: func(err error) {
			problem, ok := errors.AsType[types.Error](err)
			if !ok || !problem.Soft || !s.fragment { // soft: unused variables and imports
				problems = append(problems, err)
			}
		}}
		if _, err = config.Check("p", fset, s.files, nil); len(problems) > 0 || s.fragment {
			return errors.Join(problems...)
		}
		return err
	}
}

// export compiles the packages that pages name, and what they import, and returns the file with the types of each.
func export(t *testing.T) map[string]string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps",
		"-json=ImportPath,Export", "--"}, slices.Collect(maps.Values(packages()))...)...)
	list.Dir = filepath.Join(top, "bench") // its module also has the locks that docs/migration.md compares with
	var complaints bytes.Buffer
	list.Stderr = &complaints
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, complaints.String())
	}
	files := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return files
		} else if err != nil {
			t.Fatal(err)
		}
		files[p.ImportPath] = p.Export
	}
}
