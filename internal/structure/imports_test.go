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
	may string // the packages of ours that it may import; "*" = all
	why string // printed when it imports another one
}

// importTable lists what each package may import of ours. Tests may import anything: they need a real etcd.
func importTable() []rule {
	return []rule{
		{"pkg/metadata", "", "what a lock is must not depend on anything but the standard library"},
		{"pkg/staleness", "pkg/metadata", "a verdict is values in, value out"},
		{"internal/text", "", "text from outside is shown alike everywhere, whatever it is about"},
		{"internal/dashboard/linktemplate", "", "where a configured link leads depends on its template alone"},
		{"internal/dashboard/stacktrace", "internal/dashboard/linktemplate",
			"a backtrace is text, whatever it is about"},
		{"internal/locktxn/etcdretry", "internal/locktxn internal/etcdconn/anymember",
			"a request is sent again whatever it is for: what the answer means is the caller's business"},
		{"internal/witness/holderproc", "pkg/metadata", "what a process knows of itself does not depend on any lock"},
		{"pkg/mutex", `pkg/metadata internal/protocol internal/locktxn internal/locktxn/etcdretry
			internal/witness/holderproc internal/text`,
			"users of the client library get the client and nothing of our programs"},
		{"pkg/jobs", `pkg/metadata pkg/mutex internal/protocol internal/locktxn internal/locktxn/etcdretry
			internal/text`, "jobs are built on locks: they know nothing of our programs"},
		{"pkg/inspect", "pkg/metadata internal/protocol internal/lockstore internal/text",
			"what our programs read and remove, others may: by the same store"},
		{"pkg/leader", "pkg/metadata pkg/mutex pkg/inspect",
			"a leader holds a lock, and is seen like any holder: by what users have"},
		{"pkg/mutexmetrics", "pkg/metadata pkg/mutex internal/text", "metrics of the client come by its hooks"},
		{"pkg/mutexotel", "pkg/metadata pkg/mutex",
			"spans and metrics of the client come by its hooks; it is a module, and others import what it imports"},
		{"pkg/mutexlog", "pkg/mutex", "the log of the client comes by its hooks"},
		{"pkg/locktest", `pkg/metadata pkg/mutex internal/protocol internal/lockstore internal/testkit/etcdtest
			internal/testkit/etcdmemory`, "users' tests get what happens to locks, and nothing of our programs"},
		{"pkg/fencing", "", "a fence stands at the resource, where there is no etcd and no lock, only a token"},
		{"pkg/sweeper", "pkg/metadata pkg/staleness internal/protocol internal/text",
			"the sweeper meets the view and the store in cmd, as functions"},
		{"web", "", "templates and assets are files"},
		{"clients", "", "the clients in other languages are files"},
		{"deploy", "", "what is installed are files"},
		{"internal/etcdconn", "internal/etcdconn/anymember", "a connection knows nothing of locks"},
		{"internal/etcdconn/anymember", "", "whom a request is sent to does not depend on what it is for"},
		{"internal/testkit/etcdmemory", "", "an etcd in memory knows nothing of locks"},
		{"internal/testkit/etcdembed", "internal/testkit/proctest", "an embedded etcd knows nothing of locks"},
		{"internal/testkit/proctest", "", "code that starts programs knows nothing of what they do"},
		{"internal/testkit/certs", "internal/testkit/proctest", "certificates know nothing of who shows them"},
		{"internal/testkit/kubetest", "internal/testkit/proctest", "an API server for tests knows nothing of locks"},
		{"internal/testkit/etcdtest", "internal/testkit/etcdembed internal/testkit/certs internal/testkit/proctest",
			"a test etcd knows nothing of locks, so that every room can use it"},
		{"internal/build", "", "a version is told by the tool chain"},
		{"internal/daemon", "internal/build", "a daemon's frame knows nothing of locks"},
		{"internal/protocol", "pkg/metadata internal/text",
			"where a key lies and what a document says is one format for all: nobody is asked, nothing is sent"},
		{"internal/locktxn", "pkg/metadata internal/protocol", "transactions are data, independent of who sends them"},
		{"internal/lockstore", `pkg/metadata internal/protocol internal/locktxn internal/locktxn/etcdretry
			internal/etcdconn/anymember`,
			"the store reads and writes; it does not judge"},
		{"internal/witness/host", "pkg/metadata internal/witness/holderproc internal/cgroup internal/text",
			"what a witness states it reads from the kernel; how etcd learns of it is handed in as functions"},
		{"internal/lockview", "pkg/metadata pkg/staleness internal/protocol",
			"the snapshot has one writer, which is handed in as functions"},
		{"internal/diagnosis/deadlock", "pkg/metadata internal/text",
			"deadlocks are found from records and tickets, as values"},
		{"internal/diagnosis/fate", "pkg/metadata pkg/staleness internal/text",
			"what becomes of a stale lock is decided from what unlockers publish, for page and command line alike"},
		{"internal/diagnosis/inconsistent", "pkg/metadata internal/text",
			"what no client leaves in etcd is found from values, for all who tell of it"},
		{"internal/diagnosis/unclaimed", "pkg/metadata", "what nobody takes is found from what was seen, as values"},
		{"internal/diagnosis/verdict", `pkg/metadata pkg/staleness internal/diagnosis internal/diagnosis/deadlock
			internal/diagnosis/fate internal/diagnosis/unclaimed internal/protocol internal/text`,
			"whom a person hears of first is decided from values, for all who say it"},
		{"internal/diagnosis", "pkg/metadata pkg/staleness internal/diagnosis/deadlock internal/protocol internal/text",
			"what is the matter with a holder is decided from values, for page and command line alike"},
		{"internal/lockmetrics", `pkg/metadata pkg/staleness internal/diagnosis/deadlock internal/diagnosis/inconsistent
			internal/diagnosis/unclaimed internal/protocol internal/text`,
			"samples are computed from the view at scrape"},
		{"internal/witness/pod/podproof", "pkg/metadata",
			"whether a holder is dead is decided from values: a mistake here frees the lock of a living one"},
		{"internal/witness/pod", "internal/witness/pod/podproof pkg/metadata",
			"a witness meets the view and the store in cmd, as functions"},
		{"internal/lockjson", `internal/diagnosis internal/diagnosis/verdict internal/protocol internal/text pkg/metadata
			pkg/staleness`, "the page's API and the command line describe a lock alike: values in, value out"},
		{"internal/locks", `pkg/metadata pkg/staleness internal/protocol internal/text internal/diagnosis/deadlock
			internal/diagnosis/fate internal/diagnosis/verdict`,
			"the read model is values in, values out: page, JSON and command line read the same one"},
		{"internal/dashboard/access", "internal/text", "who asks is read from the request alone"},
		{"internal/dashboard/phrase", "internal/text internal/protocol pkg/metadata pkg/staleness",
			"words for time depend on the time that they are handed"},
		{"internal/dashboard/etcdread", "", "waiting for an answer of etcd does not depend on what is asked"},
		{"internal/dashboard/history", `internal/dashboard/etcdread internal/locks internal/diagnosis/fate
			internal/text internal/protocol pkg/metadata pkg/staleness`,
			"what is over is read by functions, and found by the queries for locks"},
		{"internal/dashboard/intervals", "internal/text pkg/metadata",
			"who held and waited when follows from records and tickets, whoever looks at it"},
		{"internal/dashboard/lanes", "internal/dashboard/intervals pkg/metadata",
			"where a bar goes follows from times: values in, values out"},
		{"internal/dashboard/setup", `internal/dashboard/access internal/locks internal/dashboard/phrase
			internal/dashboard/linktemplate internal/diagnosis/fate
			internal/diagnosis/inconsistent internal/dashboard/stacktrace internal/diagnosis/unclaimed internal/text
			internal/protocol pkg/metadata pkg/staleness`,
			"the page meets the view and the store in cmd, as what it needs of them"},
		{"internal/dashboard/site", `internal/dashboard/access internal/dashboard/etcdread internal/dashboard/history
			internal/dashboard/intervals internal/dashboard/lanes internal/locks internal/dashboard/phrase
			internal/dashboard/setup internal/diagnosis/unclaimed internal/diagnosis/fate
			internal/diagnosis/verdict internal/text internal/protocol pkg/metadata pkg/staleness`,
			"what all answers share does not depend on any of them"},
		{"internal/dashboard/backtraces", `internal/dashboard/etcdread internal/locks
			internal/dashboard/stacktrace internal/protocol pkg/metadata`,
			"which backtraces are wanted does not depend on who looks"},
		{"internal/dashboard/pages", `internal/dashboard/access internal/dashboard/backtraces
			internal/dashboard/etcdread internal/dashboard/history internal/dashboard/intervals internal/dashboard/lanes
			internal/locks internal/dashboard/phrase internal/dashboard/setup internal/dashboard/site
			internal/diagnosis/deadlock internal/diagnosis internal/diagnosis/fate
			internal/diagnosis/unclaimed internal/dashboard/stacktrace internal/text
			internal/protocol pkg/metadata pkg/staleness internal/diagnosis/verdict`,
			"a page only shows: what it shows comes from the rooms below"},
		{"internal/dashboard/api", `internal/dashboard/access internal/dashboard/history internal/dashboard/intervals
			internal/locks internal/dashboard/pages internal/dashboard/phrase internal/dashboard/site
			internal/diagnosis/verdict internal/lockjson internal/protocol internal/text
			pkg/metadata`, "programs are answered from what the pages show"},
		{"internal/dashboard/actions", `internal/dashboard/access internal/dashboard/api internal/dashboard/backtraces
			internal/dashboard/etcdread internal/locks internal/dashboard/pages internal/dashboard/phrase
			internal/dashboard/setup internal/dashboard/site internal/text internal/protocol pkg/metadata`,
			"what operators do is done by the store, in one transaction; the page that asks is one of the pages"},
		{"internal/dashboard", `internal/dashboard/access internal/dashboard/actions internal/dashboard/api
			internal/dashboard/backtraces internal/dashboard/history internal/locks internal/dashboard/pages
			internal/dashboard/setup internal/dashboard/site internal/dashboard/stacktrace
			internal/protocol internal/text pkg/metadata web`, "the door joins the rooms behind it"},
		{"internal/flags", "internal/etcdconn internal/daemon internal/protocol pkg/staleness",
			"flags fill settings, they open nothing"},
		{"internal/cli/term", "internal/text", "what is laid out for a terminal may be about anything"},
		{"internal/cgroup", "internal/text", "a cgroup is a folder, whoever works in it"},
		{"internal/cli/childproc", "internal/cgroup internal/text", "a command runs alike under whatever lock"},
		{"internal/cli", `pkg/metadata pkg/staleness pkg/mutex pkg/jobs pkg/mutexlog pkg/sweeper internal/etcdconn
			internal/protocol internal/locks internal/locktxn internal/lockjson internal/lockstore internal/lockview
			internal/diagnosis internal/diagnosis/fate internal/diagnosis/inconsistent internal/diagnosis/deadlock
			internal/diagnosis/unclaimed internal/diagnosis/verdict internal/witness/holderproc
			internal/flags internal/text internal/build internal/cli/term internal/cli/childproc`,
			"the command line is not a daemon and shows no page"},
		{"cmd/unlocker", "*", ""},
		{"cmd/mutexdash", "*", ""},
		{"cmd/mutexctl", "*", ""},
		{"cmd/mutexdev", "*", ""},
		{"cmd/internal/wiring", "*", ""},
		{"cmd/internal/unlocker", "*", ""},
		{"cmd/internal/mutexdash", "*", ""},
		{"cmd/internal/manuals", "*", ""},
		{"cmd/mutexdev/demo", "clients pkg/mutex pkg/jobs pkg/mutexlog pkg/metadata internal/protocol",
			"the demo services are users: they have what users have, and the keys that a script writes by hand"},
	}
}

// library says in which of our files a library, or everything below it, may be imported. The first row that fits
// counts.
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
			"who talks to etcd directly can bypass the guards: use internal/lockstore"},
		{"k8s.io", below("internal/witness/pod"), "Kubernetes is the witness's business"},
		{"github.com/go-chi/chi", below("internal/dashboard"), "routing is the dashboard's business"},
		{"github.com/spf13", below("internal/cli", "internal/flags", "cmd"),
			"commands and flags end where the rooms begin: hand in values"},
		{"github.com/prometheus/client_golang", func(file string) bool {
			return strings.HasSuffix(file, "metrics.go") || below("internal/lockmetrics", "internal/daemon",
				"cmd")(file)
		}, "metrics of a room stand in its metrics.go"},
		{"go.opentelemetry.io", below("pkg/mutexotel"), "OpenTelemetry is no dependency of who does not use it"},
		{"github.com/godbus", below("internal/cgroup"), "systemd is asked for one thing, a scope"},
		{"github.com/mattn/go-runewidth", below("internal/cli/term"), "columns are a terminal's business"},
		{"github.com/rs/zerolog/log", below(), "the global logger hides who logs: hand in a zerolog.Logger"},
		{"log/slog", below("pkg/mutex", "pkg/inspect", "pkg/jobs", "pkg/mutexlog", "internal/daemon", "internal/cli"),
			"programs log with zerolog, the library with slog"},
		{"log", below("internal/daemon"), "hand in a zerolog.Logger"}, // daemon translates for net/http
		{"math/rand/v2", everywhere, ""},
		{"math/rand", below(), "use math/rand/v2"},
		{"testing", below("internal/testkit/certs", "internal/testkit/etcdtest", "internal/testkit/proctest",
			"pkg/locktest"),
			"programs that contain the testing package have its flags"},
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

func TestPurePackagesHaveNoClockOrIO(t *testing.T) {
	for _, f := range sources(t) {
		if !below("pkg/metadata", "pkg/staleness", "internal/protocol", "internal/diagnosis/deadlock",
			"internal/diagnosis/unclaimed", "internal/diagnosis/verdict", "internal/lockjson",
			"internal/text", "internal/dashboard/linktemplate", "internal/dashboard/stacktrace",
			"internal/dashboard/phrase", "internal/dashboard/lanes", "internal/witness/pod/podproof")(f.name) {
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
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/unlocker", "./cmd/mutexdash",
		"./cmd/mutexctl").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	for _, dep := range strings.Fields(string(out)) {
		if below("testing", "go.etcd.io/etcd/server/v3", module+"/internal/testkit")(dep + "/") {
			t.Errorf("a production binary contains %s", dep)
		}
	}
}
