package robustness

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// report is what came out of a run.
type report struct {
	config
	Questions  map[string]int // asked by clients, by kind and answer
	Ops        int            // checked for linearizability
	Unknown    int            // of them without an answer that tells
	Check      time.Duration
	Changes    int // of keys in etcd
	Holds      int
	Ended      map[string]int // holds, by how they ended
	Fenced     [2]int         // writes that the fence let in, and that it kept out
	Pushed     int            // extensions in the last moment
	Stated     int            // deaths, by witnesses
	Faults     map[string]int
	Violations []string
	Dir        string // where everything is kept; empty where nothing was found

	rules map[string]bool
}

func (r *report) String() string {
	faults := 0
	ended := []string{}
	for _, n := range r.Faults {
		faults += n
	}
	for _, how := range slices.Sorted(maps.Keys(r.Ended)) {
		ended = append(ended, fmt.Sprintf("%d %s", r.Ended[how], how))
	}
	return fmt.Sprintf("%v: %d operations (%d in doubt), %d faults, %d deaths stated, %d holds (%s), "+
		"fence %d in %d out, %d changes, "+
		"checked in %v, %d violations",
		r.config, r.Ops, r.Unknown, faults, r.Stated, r.Holds, strings.Join(ended, ", "),
		r.Fenced[0], r.Fenced[1], r.Changes,
		r.Check.Round(time.Millisecond), len(r.Violations))
}

func timeout(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// perform runs c and returns its findings.
func perform(t testing.TB, c config) *report {
	t.Helper()
	c = c.settle()
	dir := t.TempDir()
	r := &report{config: c, Questions: map[string]int{}, Ended: map[string]int{}, rules: map[string]bool{}}
	var mu sync.Mutex
	found := func(rule, format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		r.rules[rule] = true
		r.Violations = append(r.Violations, violation{rule, fmt.Sprintf(format, args...)}.String())
	}
	s := setUp(t, c, dir)
	ctx, cancel := timeout(c.For)
	s.breakThings(ctx)
	cancel()
	s.comeDown(found)
	s.judge(found, r)
	r.Faults = s.counts
	if len(r.Violations) > 0 {
		r.Dir = s.keep(r)
	}
	return r
}

func (j *judgement) count(r *report, changes int) {
	r.Changes = changes
	r.Holds = len(j.holds)
	r.Pushed = j.keepers.pushed
	r.Stated = len(j.statements)
	for _, h := range j.holds {
		if h.gone == 0 {
			h.goneBy = "left"
		}
		r.Ended[h.goneBy]++
	}
	for _, t := range j.told {
		for _, q := range t.questions {
			r.Questions[q.Op+" "+q.answer.Said]++
		}
	}
	r.Fenced = [2]int{len(j.resource.in), j.resource.kept}
}

// keep saves the evidence: notes, logs, etcd's history, faults.
func (s *stage) keep(r *report) string {
	s.t.Helper()
	parent := *keepFlag
	if parent == "" {
		parent = filepath.Join(os.TempDir(), "unlocker-robustness-found")
	}
	dir := filepath.Join(parent, fmt.Sprintf("seed-%d-%s", r.Seed, time.Now().Format("150405")))
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
	if err := os.CopyFS(dir, os.DirFS(s.dir)); err != nil {
		s.t.Log(err)
	}
	for name, text := range map[string]string{"etcd.txt": history.String(), "faults.txt": faults.String(),
		"report.json": string(b), "began.txt": strconv.FormatInt(s.began, 10)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			s.t.Log(err)
		}
	}
	return dir
}

// complain fails the test with the findings of a run, and shows how to repeat it.
func complain(t *testing.T, r *report) {
	t.Helper()
	for i, v := range r.Violations {
		if i == 20 {
			t.Errorf("and %d more", len(r.Violations)-i)
			break
		}
		t.Error(v)
	}
	if len(r.Violations) > 0 {
		t.Errorf("kept in %s; once more: go test -C test/robustness -count=1 -run TestRuns "+
			"-seeds %d -for %v -nodes %d -set %s -without '%s'",
			r.Dir, r.Seed, r.For, r.Nodes, r.World, strings.Join(r.Without, ","))
	}
}

// length is the default length of a run.
func length(standard time.Duration) time.Duration {
	if *forFlag > 0 {
		return *forFlag
	}
	return standard
}

// commas are the parts of a list.
func commas(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

// TestRuns breaks things for a while, for each seed.
func TestRuns(t *testing.T) {
	t.Parallel()
	seeds := []uint64{}
	for _, text := range commas(*seedsFlag) {
		if text == "random" {
			text = strconv.Itoa(rand.IntN(1_000_000))
		}
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = append(seeds, seed)
	}
	c := config{For: length(4 * time.Second), Nodes: *nodesFlag, World: *setFlag, Without: commas(*withoutFlag),
		Favour: commas(*favourFlag)}
	if len(seeds) == 0 {
		seeds = append(seeds, rand.Uint64N(1_000_000))
		c.Nodes = 1
		c.World = wireWorld
		c.Without = []string{"client killed", "everything restarted"} // the leases of the dead take ten seconds to end
	}
	for _, seed := range seeds {
		c := c
		c.Seed = seed
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			r := perform(t, c)
			t.Log(r)
			complain(t, r)
		})
	}
}

// TestSoak runs one random seed after the other for as long as it was told. What each of them did is written to
// soak.jsonl.
func TestSoak(t *testing.T) {
	if *soakFlag > 0 {
		soak(t, time.Now().Add(*soakFlag))
	}
}

func soak(t *testing.T, end time.Time) {
	total := &report{Faults: map[string]int{}, Ended: map[string]int{}}
	runs := 0
	for ; time.Now().Before(end); runs++ {
		c := config{Seed: rand.Uint64N(1_000_000), For: length(time.Minute), Nodes: *nodesFlag, World: *setFlag,
			Favour: commas(*favourFlag)}
		t.Run(strconv.FormatUint(c.Seed, 10), func(t *testing.T) {
			r := perform(t, c)
			fmt.Println(r) // the test's own log comes at its end, hours later
			complain(t, r)
			total.add(r)
			total.append(t, r)
		})
	}
	fmt.Printf("%d runs, %d operations (%d in doubt), %d holds %v, %d deaths stated, faults %v, %d violations\n", runs,
		total.Ops,
		total.Unknown, total.Holds, total.Ended, total.Stated, total.Faults, len(total.Violations))
}

func (r *report) add(o *report) {
	r.Ops += o.Ops
	r.Unknown += o.Unknown
	r.Holds += o.Holds
	r.Stated += o.Stated
	r.Violations = append(r.Violations, o.Violations...)
	for name, n := range o.Faults {
		r.Faults[name] += n
	}
	for name, n := range o.Ended {
		r.Ended[name] += n
	}
}

// append writes the report of one run into a file that outlives all of them.
func (r *report) append(t *testing.T, o *report) {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	dir := *keepFlag
	if dir == "" {
		dir = os.TempDir()
	}
	f, err := os.OpenFile(filepath.Join(dir, "soak.jsonl"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.Write(append(b, '\n'))
}

// TestMutants leaves out one guard at a time and has to find each. Without -mutants it does so with one of them,
// to show that the runs can fail.
func TestMutants(t *testing.T) {
	t.Parallel()
	want := strings.Split(*mutantsFlag, ",")
	if *mutantsFlag == "" {
		want = []string{"release-holder"}
	}
	for _, m := range mutants() {
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
	length := length(max(5*time.Second, m.length))
	for seed, ops, began := uint64(1), 0, time.Now(); ; seed++ {
		var r *report
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			r = perform(t, config{Seed: seed, For: length, Nodes: 1, World: wireWorld, Mutant: m, Locks: 4,
				Without: []string{"everything restarted", "etcd: out of space"}, Favour: m.favour, Calm: m.calm})
		})
		if r == nil {
			return
		}
		ops += r.Ops
		for _, rule := range m.rules {
			if r.rules[rule] {
				i := slices.IndexFunc(r.Violations, func(v string) bool { return strings.HasPrefix(v, rule) })
				t.Logf("%s: found with seed %d after %d operations, %v: %s", m.name, seed, ops,
					time.Since(began).Round(time.Second), r.Violations[i])
				os.RemoveAll(r.Dir)
				return
			}
		}
		if seed >= 12 && ops >= enough {
			t.Fatalf("%s (%s) was not found with the seeds 1 to %d and %d operations; found instead: %v", m.name,
				m.about, seed, ops, r.Violations)
		}
	}
}
