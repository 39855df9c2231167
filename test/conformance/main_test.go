//go:build conformance

// Package conformance holds every client to docs/protocol.md, whatever its language: docs/conformance.md says how.
//
// Each client is a driver process that takes requests and prints answers, one JSON object a line. The etcd is real, so
// are the unlocker, the dashboard and mutexctl, and between a driver and etcd stands a wire that loses, delays and
// repeats what passes.
package conformance

import (
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/grpclog"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// programs are the binaries.
var programs *proctest.Programs

var (
	clientDirs  = flag.String("clients", "", "directories of clients, by commas; all of clients/* if empty")
	limit       = flag.Duration("limit", time.Minute, "how long anything may take: long, as the machine may be busy")
	broken      = flag.String("broken", "", "a Go driver with this fault is the only other client")
	programsDir = flag.String("programs", "", "directory of the programs; they are built if it is empty")
	protocolDir = flag.String("protocol", "../../docs/protocol", "directory of vectors.json and transactions.json")
)

func TestMain(m *testing.M) {
	etcdtest.Member()
	goDriverProcess()
	flag.Parse()
	// The gateway of the embedded etcd complains of clients that go away.
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if *programsDir != "" {
		root, err := filepath.Abs("../..")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		programs = &proctest.Programs{Dir: *programsDir, Root: root}
		return m.Run()
	}
	var err error
	if programs, err = proctest.Build("unlocker", "mutexdash", "mutexctl"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer programs.Remove()
	return m.Run()
}

// quiet is a log that nobody reads.
func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// findClients are the Go client and those that the flag names, each with its info.
func findClients(t *testing.T) []*client {
	t.Helper()
	if *broken != "" {
		return asked(t, goClient("none"), goClient(*broken))
	}
	var dirs []string
	for dir := range strings.SplitSeq(*clientDirs, ",") {
		if dir = strings.TrimSpace(dir); dir != "" {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) == 0 {
		found, err := filepath.Glob(filepath.Join(programs.Root, "clients", "*", "conformance", "run"))
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range found {
			dirs = append(dirs, filepath.Dir(filepath.Dir(run)))
		}
	}
	all := []*client{goClient("none")}
	for _, dir := range dirs {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(programs.Root, dir)
		}
		all = append(all, scriptClient(dir))
	}
	return asked(t, all...)
}

// asked asks clients for their info.
func asked(t *testing.T, all ...*client) []*client {
	t.Helper()
	for i, c := range all {
		c.place = i
		c.ask(t)
	}
	return all
}

// ask asks the client for its info.
func (c *client) ask(t *testing.T) {
	t.Helper()
	c.info = c.start(t).must(request{"do": "info"})
	if c.info.Client == "" || !slices.Contains(c.info.Levels, "basic") {
		t.Fatalf("%s: a client names itself and has at least the level basic: %s", c.name, c.info.line)
	}
	for _, level := range c.info.Levels {
		if !isLevel(level) {
			t.Fatalf("%s: there is no level %q", c.name, level)
		}
	}
}
