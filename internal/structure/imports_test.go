// Package structure_test checks the structure of the repository: which package may import which, where libraries may be
// used, what the public API promises, and that the documentation is true to the code. docs/architecture.md explains it.
package structure_test

import (
	"go/ast"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/clustermutex/unlocker"

// rule is one row of the import table.
type rule struct {
	dir string
	may string // the packages of this module that it may import; "*" for all
	why string // the reason, printed when it imports another
}

// importTable lists which packages of this module each package may import. Tests may import anything: they need a real
// etcd.
func importTable() []rule {
	return []rule{
		{"pkg/metadata", "", "the data model depends on the standard library only"},
		{"pkg/staleness", "pkg/metadata", "staleness is a pure function of a record, a policy and a moment"},
		{"internal/lockrecord", "pkg/metadata internal/text", "reading and writing records needs no connection"},
		{"internal/text", "", "escaping does not depend on what the text is about"},
		{"internal/locktxn/etcdretry", "internal/locktxn internal/etcdconn/anymember",
			"retries do not depend on what a request is for; the caller interprets the response"},
		{"internal/witness/holderproc", "pkg/metadata", "the identity of a process does not depend on locks"},
		{"pkg/mutex", `pkg/metadata internal/protocol internal/locktxn internal/locktxn/etcdretry
			internal/witness/holderproc internal/text internal/lockrecord`,
			"the client library must not pull in our programs"},
		{"pkg/jobs", `pkg/metadata pkg/mutex internal/protocol internal/locktxn internal/locktxn/etcdretry
			internal/text internal/lockrecord`,
			"jobs are built on the client library and must not pull in our programs"},
		{"pkg/inspect", "pkg/metadata internal/protocol internal/lockstore internal/text",
			"inspect and our programs share one store"},
		{"pkg/leader", "pkg/metadata pkg/mutex pkg/inspect",
			"leader election is built on the public API of locks"},
		{"pkg/mutexmetrics", "pkg/metadata pkg/mutex internal/text", "metrics of the client come from its hooks"},
		{"pkg/mutexotel", "pkg/metadata pkg/mutex",
			"spans and metrics come from the client's hooks; users of this module get all that it imports"},
		{"pkg/mutexlog", "pkg/mutex", "the log of the client comes from its hooks"},
		{"pkg/locktest", `pkg/metadata pkg/mutex internal/protocol internal/lockstore internal/testkit/etcdtest
			internal/testkit/etcdmemory internal/lockrecord`,
			"users' tests get an etcd in memory and its locks, and must not pull in our programs"},
		{"pkg/fencing", "", "a fence runs next to the resource, where there is no etcd, only a token"},
		{"pkg/sweeper", "pkg/metadata pkg/staleness internal/protocol internal/text internal/lockrecord",
			"the sweeper gets the view and the store as functions, from cmd"},
		{"web", "", "templates and assets are files"},
		{"deploy", "", "manifests and rules are files"},
		{"internal/etcdconn", "internal/certificate internal/etcdconn/anymember",
			"a connection does not depend on locks"},
		{"internal/etcdconn/anymember", "", "the choice of a member does not depend on what a request is for"},
		{"internal/testkit/etcdmemory", "", "an etcd in memory does not depend on locks"},
		{"internal/testkit/etcdembed", "internal/testkit/proctest", "an embedded etcd does not depend on locks"},
		{"internal/testkit/proctest", "", "starting a program does not depend on what it does"},
		{"internal/testkit/kubetest", "internal/testkit/proctest", "an API server for tests does not depend on locks"},
		{"internal/testkit/etcdtest", "internal/testkit/etcdembed internal/testkit/proctest",
			"a test etcd does not depend on locks, so that tests of every package can use it"},
		{"internal/certificate", "", "when a certificate expires does not depend on what it is for"},
		{"internal/daemon", "internal/certificate", "servers, probes and logs do not depend on locks"},
		{"internal/protocol", "pkg/metadata internal/text internal/lockrecord",
			"the format of keys and documents needs no connection"},
		{"internal/locktxn", "pkg/metadata internal/protocol internal/lockrecord",
			"transactions are data, independent of how they are sent"},
		{"internal/lockstore", `pkg/metadata internal/protocol internal/locktxn internal/locktxn/etcdretry
			internal/etcdconn/anymember internal/lockrecord`,
			"the store reads and writes locks, but does not judge them"},
		{"internal/witness/host", `pkg/metadata internal/witness/holderproc internal/cgroup internal/text
			internal/lockrecord`,
			"a witness reads the kernel, and gets access to etcd as functions"},
		{"internal/lockview", `pkg/metadata pkg/staleness internal/protocol internal/lockrecord internal/diagnosis
			internal/locks internal/text`, "the view gets access to etcd as functions, and fills the read model"},
		{"internal/etcdlocks", `pkg/metadata internal/protocol internal/lockrecord internal/locks internal/etcdconn
			internal/locktxn/etcdretry internal/text`, "other libraries' locks are read through functions, and fill the read model"},
		{"internal/diagnosis/deadlock", "pkg/metadata internal/protocol internal/text",
			"finding deadlocks is a pure function of records and tickets"},
		{"internal/diagnosis", "pkg/metadata pkg/staleness internal/diagnosis/deadlock internal/protocol internal/text",
			"a diagnosis is a pure function, shared by page, CLI and metrics"},
		{"internal/lockmetrics", `pkg/metadata pkg/staleness internal/diagnosis/deadlock internal/diagnosis
			internal/protocol internal/text internal/lockrecord internal/locks internal/lockview`,
			"samples are computed from the read model, at each scrape"},
		{"internal/witness/pod/podproof", "pkg/metadata",
			"a proof of death is a pure function: a mistake would free the lock of a living holder"},
		{"internal/witness/pod", "internal/witness/pod/podproof pkg/metadata",
			"a witness gets the view and the store as functions, from cmd"},
		{"internal/lockjson",
			`internal/diagnosis internal/headline internal/locks internal/protocol internal/text pkg/metadata
			pkg/staleness`, "the JSON is a pure function, shared by API and CLI"},
		{"internal/headline", `pkg/metadata pkg/staleness internal/locks internal/diagnosis internal/diagnosis/deadlock
			internal/text internal/lockrecord internal/protocol`,
			"the headline is a pure function of the read model, shared by page, CLI and API"},
		{"internal/locks", `pkg/metadata pkg/staleness internal/protocol internal/text internal/diagnosis/deadlock
			internal/diagnosis internal/headline internal/lockrecord`,
			"the read model is a pure function, shared by page, API, CLI and metrics"},
		{"internal/dashboard/access", "internal/text", "the caller's identity depends on the request only"},
		{"internal/dashboard/stacktrace", "", "a backtrace is only text"},
		{"internal/dashboard/timeline", "internal/text pkg/metadata internal/lockrecord internal/protocol",
			"the position of a bar is a pure function of records, tickets and times"},
		{"internal/dashboard/etcdread",
			`internal/locks internal/dashboard/stacktrace internal/dashboard/timeline internal/text internal/protocol
			pkg/metadata internal/lockrecord`,
			"what is read from etcd does not depend on pages, and is filtered like the list of locks"},
		{"internal/dashboard/app", `internal/dashboard/access internal/dashboard/etcdread internal/dashboard/timeline
			internal/dashboard/stacktrace internal/locks internal/diagnosis internal/headline internal/text
			internal/protocol pkg/metadata pkg/staleness internal/lockrecord`,
			"what all handlers share must not depend on any of them; cmd provides the view and the store"},
		{"internal/dashboard/pages", `internal/dashboard/access internal/dashboard/app internal/dashboard/etcdread
			internal/dashboard/timeline internal/dashboard/stacktrace internal/locks internal/diagnosis/deadlock
			internal/diagnosis internal/headline internal/text internal/protocol pkg/metadata pkg/staleness
			internal/lockrecord`,
			"pages show what the packages below compute"},
		{"internal/dashboard/api", `internal/dashboard/access internal/dashboard/app internal/dashboard/etcdread
			internal/dashboard/timeline internal/dashboard/pages internal/locks internal/headline
			internal/lockjson internal/protocol internal/text pkg/metadata`, "the API serves the data of the pages"},
		{"internal/dashboard/actions", `internal/dashboard/access internal/dashboard/api internal/dashboard/app
			internal/dashboard/etcdread internal/dashboard/pages internal/locks internal/text internal/protocol
			pkg/metadata internal/lockrecord`,
			"actions are performed by the store, in one transaction; their forms are pages"},
		{"internal/dashboard", `internal/dashboard/access internal/dashboard/actions internal/dashboard/api
			internal/dashboard/app internal/dashboard/etcdread internal/dashboard/pages internal/dashboard/stacktrace
			internal/locks internal/protocol internal/text pkg/metadata web`, "the router connects the handlers"},
		{"internal/flags", "internal/etcdconn internal/daemon internal/protocol pkg/staleness",
			"flags fill in settings, and open no connections"},
		{"internal/cli/term", "internal/text", "the layout of tables does not depend on their content"},
		{"internal/cgroup", "internal/text", "cgroups do not depend on what runs in them"},
		{"internal/cli/childproc", "internal/cgroup internal/text", "running a command does not depend on its lock"},
		{"internal/cli", `pkg/metadata pkg/staleness pkg/mutex pkg/jobs pkg/mutexlog pkg/sweeper internal/etcdconn
			internal/certificate internal/protocol internal/etcdlocks internal/locks internal/locktxn internal/lockjson
			internal/lockstore internal/lockview internal/diagnosis internal/diagnosis/deadlock internal/headline
			internal/witness/holderproc internal/flags internal/text internal/daemon internal/cli/term
			internal/cli/childproc internal/lockrecord`,
			"the CLI is neither a daemon nor a dashboard"},
		{"cmd/unlocker", "*", ""},
		{"cmd/mutexdash", "*", ""},
		{"cmd/mutexctl", "*", ""},
		{"cmd/mutexdev", "*", ""},
		{"cmd/internal/unlocker", "*", ""},
		{"cmd/internal/mutexdash", "*", ""},
		{"cmd/internal/manuals", "*", ""},
	}
}

// library says which of our files may import a library, or packages below it. The first row that matches counts.
type library struct {
	path string
	in   func(file string) bool
	why  string
}

func libraries() []library {
	return []library{
		{"go.etcd.io/etcd/server/v3", below("internal/testkit/etcdembed"),
			"the production binaries must stay free of etcd's server"},
		{"go.etcd.io/etcd", below("internal/etcdconn", "internal/locktxn", "internal/lockstore",
			"internal/testkit/etcdtest", "internal/testkit/etcdembed", "internal/testkit/etcdmemory", "internal/cli",
			"pkg/mutex", "pkg/inspect", "pkg/jobs", "pkg/locktest", "cmd"),
			"direct access to etcd could bypass the guards: use internal/lockstore"},
		{"k8s.io", below("internal/witness/pod"), "only the witness in Kubernetes uses the Kubernetes API"},
		{"github.com/go-chi/chi", below("internal/dashboard"), "only the dashboard has routes"},
		{"github.com/spf13", below("internal/cli", "internal/flags", "cmd"),
			"packages below the commands take values, not flags"},
		{"github.com/prometheus/client_golang", func(file string) bool {
			return strings.HasSuffix(file, "metrics.go") || below("internal/lockmetrics", "internal/daemon",
				"cmd")(file)
		}, "the metrics of a package are in its metrics.go"},
		{"go.opentelemetry.io", below("pkg/mutexotel"), "those who do not use OpenTelemetry must not depend on it"},
		{"github.com/godbus", below("internal/cgroup"), "systemd is used only to create a scope"},
		{"github.com/mattn/go-runewidth", below("internal/cli/term"), "only terminals have columns"},
		{"github.com/rs/zerolog/log", below(),
			"a global logger hides a dependency: take a zerolog.Logger as a parameter"},
		{"log/slog", below("pkg/mutex", "pkg/inspect", "pkg/jobs", "pkg/mutexlog", "internal/daemon", "internal/cli"),
			"programs log with zerolog, the library with slog"},
		{"log", below("internal/daemon"), "take a zerolog.Logger as a parameter"}, // daemon translates for net/http
		{"math/rand/v2", everywhere, ""},
		{"math/rand", below(), "use math/rand/v2"},
		{"testing", below("internal/testkit/etcdtest", "internal/testkit/proctest",
			"pkg/locktest"),
			"the testing package adds its flags to a program"},
		{"text/template", below(), "names and backtraces are hostile: html/template escapes them"},
	}
}

func everywhere(string) bool { return true }

func TestImportsFollowTheTable(t *testing.T) {
	rules := map[string]rule{}
	for _, r := range importTable() {
		rules[r.dir] = r
	}
	found := map[string]bool{}
	for _, f := range sources(t) {
		dir := path.Dir(f.name)
		found[dir] = true
		r, ok := rules[dir]
		if !ok {
			t.Errorf("package %s is not in the import table: list what it may import, and why", dir)
			continue
		}
		for _, imported := range f.imports() {
			ours, ok := strings.CutPrefix(imported, module+"/")
			if ok && !slices.Contains(strings.Fields(r.may), ours) && r.may != "*" {
				t.Errorf("%s imports %s: %s", f.name, ours, r.why)
			}
		}
	}
	for dir := range rules {
		if !found[dir] {
			t.Errorf("the import table has a row for %s, which has no code", dir)
		}
	}
}

func TestLibrariesStayInTheirPackages(t *testing.T) {
	for _, f := range sources(t) {
		for _, imported := range f.imports() {
			i := slices.IndexFunc(libraries(), func(l library) bool { return below(l.path)(imported + "/") })
			if i >= 0 && !libraries()[i].in(f.name) {
				t.Errorf("%s imports %s: %s", f.name, imported, libraries()[i].why)
			}
		}
	}
}

// Pages, JSON, commands and metrics once judged locks each in their own way, and contradicted each other.
func TestReadersShareOneModel(t *testing.T) {
	where := map[string]func(file string) bool{
		"staleness.Judge": below("internal/locks", "pkg/sweeper"),
		"locks.Input":     below("internal/lockview"),
		"locks.Build":     below("internal/lockview"),
		"locks.NewRow":    below("internal/locks"),
	}
	for _, f := range sources(t) {
		ast.Inspect(f.tree, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := s.X.(*ast.Ident); ok {
				if allowed := where[x.Name+"."+s.Sel.Name]; allowed != nil && !allowed(f.name) {
					t.Errorf("%s uses %s.%s: take the rows of a locks.Snapshot", f.name, x.Name, s.Sel.Name)
				}
			}
			return true
		})
	}
}

func TestPurePackagesHaveNoClockOrIO(t *testing.T) {
	for _, f := range sources(t) {
		if !below("pkg/metadata", "pkg/staleness", "internal/protocol",
			"internal/diagnosis", "internal/lockjson",
			"internal/text", "internal/dashboard/stacktrace", "internal/dashboard/timeline/chart.go",
			"internal/dashboard/app/time_text.go", "internal/witness/pod/podproof")(f.name + "/") {
			continue
		}
		for _, imported := range f.imports() {
			if slices.Contains([]string{"context", "io", "io/fs", "net", "net/http", "os", "os/exec", "sync",
				"syscall"}, imported) {
				t.Errorf("%s imports %s: this package is pure", f.name, imported)
			}
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" &&
				slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "NewTimer", "NewTicker"},
					s.Sel.Name) {
				t.Errorf("%s calls time.%s: in this package time is a parameter", f.name, s.Sel.Name)
			}
			return true
		})
	}
}

func TestProductionBinariesStaySmall(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module+"/cmd/unlocker", module+"/cmd/mutexdash",
		module+"/cmd/mutexctl").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	for _, dep := range strings.Fields(string(out)) {
		if below("testing", "go.etcd.io/etcd/server/v3", module+"/internal/testkit")(dep + "/") {
			t.Errorf("a production binary contains %s", dep)
		}
	}
}
