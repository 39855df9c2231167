// Package robustness runs everything at once, breaks it at random, and checks afterwards what happened.
//
// A run has real etcd members, real unlockers and a real dashboard, and many client processes that take locks. A seed
// decides what is broken, when and for how long. Whatever was done is written down in three places that know nothing of
// each other: by the clients (what they asked and were told), by etcd (every change, in its order) and by a resource
// behind a fence (whom it let in). The checks compare the three. docs/correctness.md tells what they prove and what
// they do not.
//
//	go test -C test/robustness                                        a minute
//	go test -C test/robustness -run TestRuns -seeds 1,2,3 -for 20s    runs of these seeds
//	go test -C test/robustness -run TestSoak -soak 1h -timeout 0      one seed after the other
//	go test -C test/robustness -run TestMutants -mutants all          leaves guards out and wants that to be found
//	make faults                                                       single faults that need more than Go
package robustness

import (
	"flag"
	"fmt"
	"os"
	"testing"

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

// programs are the binaries, with one more: unlocker-shifted.
var programs *proctest.Programs

func TestMain(m *testing.M) {
	etcdtest.Member()
	client()
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if programs, err = proctest.Build("unlocker", "mutexdash"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer programs.Remove()
	if err := buildShifted(programs); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
