// Package robustness runs all programs together, injects random faults, and checks afterwards what happened.
//
// A run has real etcd members, real unlockers and a real dashboard, and many client processes that take locks. A seed
// decides what is broken, when and for how long. Three independent records are kept: by the clients (requests and
// answers), by etcd (every change, in order) and by a resource behind a fence (whom it admitted). The checks compare
// the three. docs/correctness.md describes what they prove and what they do not.
//
//	go test -C test/robustness                                        a minute
//	go test -C test/robustness -run TestRuns -seeds 1,2,3 -for 20s    runs of these seeds
//	go test -C test/robustness -run TestSoak -soak 1h -timeout 0      one seed after the other
//	go test -C test/robustness -run TestMutants -mutants all          leaves guards out and wants that to be found
//	make faults                                                       single faults that need more than Go
package robustness

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// What a command line may ask for.
var (
	seedsFlag = flag.String("seeds", "", "seeds of TestRuns, comma separated; a random one without")
	forFlag   = flag.Duration("for", 0, "how long the faults of one run go on")
	nodesFlag = flag.Int("nodes", 0, "members of etcd, 1 or 3; otherwise the seed decides")
	setFlag   = flag.String("set", "",
		"the world of TestRuns: plain, wire, login or certificates; otherwise the seed decides")
	withoutFlag = flag.String("without", "", "faults that do not happen, comma separated")
	favourFlag  = flag.String("favour", "", "faults that happen ten times as often, comma separated")
	disksFlag   = flag.Bool("disks", false, "disks hang in runs, too; needs strace")
	soakFlag    = flag.Duration("soak", 0, "how long TestSoak goes on")
	mutantsFlag = flag.String("mutants", "", "mutants of TestMutants, comma separated, or all; one without")
	keepFlag    = flag.String("keep", "",
		"directory for histories and logs of runs that found something; without it, a new temporary one")
)

var programs *proctest.Programs

func TestMain(m *testing.M) {
	etcdtest.Member()
	client()
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if programs, err = proctest.Build("unlocker", "mutexdash"); err == nil {
		defer programs.Remove()
		err = buildShifted(programs)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

type report struct {
	config
	Began      int64          // stamp
	Counts     map[string]int // of faults, by name, and of what was checked
	Violations []violation
	Dir        string // where everything is kept; empty where nothing was found
}

func (r *report) String() string {
	return fmt.Sprintf("%v: %v, %d violations", r.config, r.Counts, len(r.Violations))
}

func timeout(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

func perform(t testing.TB, c config) *report {
	s := newStage(t, c.settle(), t.TempDir())
	r := &report{config: s.config, Began: s.began, Counts: s.counts}
	s.found = collect(&r.Violations)
	s.setUp()
	ctx, cancel := timeout(c.For)
	s.breakThings(ctx)
	cancel()
	s.comeDown()
	s.judge()
	if len(r.Violations) > 0 {
		r.Dir = s.keep(r)
	}
	return r
}

// keep saves the evidence: notes, logs, etcd's history, faults.
func (s *stage) keep(r *report) string {
	dir := filepath.Join(cmp.Or(*keepFlag, filepath.Join(os.TempDir(), "unlocker-robustness-found")),
		fmt.Sprintf("seed-%d-%s", r.Seed, time.Now().Format("150405")))
	changes, _ := s.recorder.all()
	var history, faults strings.Builder
	for _, c := range changes {
		fmt.Fprintf(&history, "%s %d %s deleted=%v lease=%v created=%d %q\n", seconds(c.at, s.began), c.revision, c.key,
			c.deleted, c.lease, c.created, c.value)
	}
	for _, f := range s.faults {
		fmt.Fprintf(&faults, "%s to %s: %s\n", seconds(f.from, s.began), seconds(f.to, s.began), f.name)
	}
	for _, p := range slices.Concat(s.former, s.clients, s.unlockers) {
		fmt.Fprintf(&faults, "%s began %s, killed %s\n", p.name, seconds(p.began, s.began), seconds(p.killed, s.began))
		for _, pause := range p.pauses {
			fmt.Fprintf(&faults, "%s stood still from %s to %s\n", p.name, seconds(pause[0], s.began),
				seconds(pause[1], s.began))
		}
	}
	b, _ := json.MarshalIndent(r, "", "  ")
	os.RemoveAll(filepath.Join(s.dir, "current")) // links are not copied
	err := os.CopyFS(dir, os.DirFS(s.dir))
	for name, text := range map[string]string{"etcd.txt": history.String(), "faults.txt": faults.String(),
		"report.json": string(b)} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	if err != nil {
		s.t.Log(err)
	}
	return dir
}

func complain(t *testing.T, r *report) {
	t.Helper()
	for _, v := range r.Violations[:min(20, len(r.Violations))] {
		t.Error(v)
	}
	if len(r.Violations) > 0 {
		t.Errorf("%d violations, kept in %s; once more: go test -C test/robustness -count=1 -run TestRuns "+
			"-seeds %d -for %v -nodes %d -set %s -without '%s'",
			len(r.Violations), r.Dir, r.Seed, r.For, r.Nodes, r.World, strings.Join(r.Without, ","))
	}
}

func commas(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

// TestRuns injects faults for a while, for each seed.
func TestRuns(t *testing.T) {
	t.Parallel()
	c := config{For: cmp.Or(*forFlag, 4*time.Second), Nodes: *nodesFlag, World: *setFlag,
		Without: commas(*withoutFlag), Favour: commas(*favourFlag)}
	seeds := commas(*seedsFlag)
	if len(seeds) == 0 {
		seeds = []string{"random"}
		c.Nodes = 1
		c.World = wireWorld
		c.Without = []string{"client killed", "everything restarted"} // the leases of the dead take ten seconds to end
	}
	for _, seed := range seeds {
		if seed == "random" {
			seed = strconv.Itoa(rand.IntN(1_000_000))
		}
		t.Run(seed, func(t *testing.T) {
			t.Parallel()
			c := c
			var err error
			c.Seed, err = strconv.ParseUint(seed, 10, 64)
			proctest.Must(t, err)
			r := perform(t, c)
			t.Log(r)
			complain(t, r)
		})
	}
}

// TestSoak runs one random seed after the other for the given time.
func TestSoak(t *testing.T) {
	total := &report{Counts: map[string]int{}}
	end := time.Now().Add(*soakFlag)
	for time.Now().Before(end) {
		c := config{Seed: rand.Uint64N(1_000_000), For: cmp.Or(*forFlag, time.Minute), Nodes: *nodesFlag,
			World: *setFlag, Favour: commas(*favourFlag)}
		t.Run(strconv.FormatUint(c.Seed, 10), func(t *testing.T) {
			r := perform(t, c)
			total.For += r.For
			total.Violations = append(total.Violations, r.Violations...)
			for what, n := range r.Counts {
				total.Counts[what] += n
			}
			fmt.Printf("%v\nup to now: %v\n", r, total) // the test's own log comes at its end, hours later
			complain(t, r)
		})
	}
}

// TestMutants leaves out one guard at a time and has to detect each. Without -mutants it tries only one of them, to
// show that the runs can fail.
func TestMutants(t *testing.T) {
	t.Parallel()
	want := strings.Split(*mutantsFlag, ",")
	if *mutantsFlag == "" {
		want = []string{"release-holder"}
	}
	for _, m := range mutants {
		if !slices.Contains(want, m.name) && *mutantsFlag != "all" {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			hunt(t, m)
		})
	}
}

// enough operations have to be checked before a mutant counts as not found: on a busy machine a seed has few of them.
const enough = 5000

// hunt runs one seed after the other until a mutant is found, for a minute of faults at most, or for as long as it
// takes to check enough.
func hunt(t *testing.T, m *mutant) {
	length := cmp.Or(*forFlag, max(5*time.Second, m.length))
	for seed, ops, began := uint64(1), 0, time.Now(); ; seed++ {
		var r *report
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			r = perform(t, config{Seed: seed, For: length, Nodes: 1, World: wireWorld, Mutant: m, Locks: 4,
				Without: []string{"everything restarted", "etcd: out of space"}, Favour: m.favour, Calm: m.calm})
		})
		if r == nil {
			return
		}
		ops += r.Counts[operations]
		i := slices.IndexFunc(r.Violations, func(v violation) bool { return slices.Contains(m.rules, v.Rule) })
		if i >= 0 {
			t.Logf("%s: found with seed %d after %d operations, %v: %v", m.name, seed, ops,
				time.Since(began).Round(time.Second), r.Violations[i])
			os.RemoveAll(r.Dir)
			return
		}
		if seed >= 12 && ops >= enough {
			t.Fatalf("%s (%s) was not found with the seeds 1 to %d and %d operations; found instead: %v", m.name,
				m.about, seed, ops, r.Violations)
		}
	}
}
