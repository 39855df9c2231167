package host

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Config configures a witness. All functions are required.
type Config struct {
	ID      string // of this witness, for its statements
	Machine Machine

	// Locks returns the locks in etcd, at least those that pass [Machine.MayHold]. Changed returns a channel that is
	// closed when they or their freshness change.
	Locks   func() []*metadata.Record
	Changed func() <-chan struct{}
	// Freshness returns the revision of the first list of the locks, 0 before it, and why the locks are not up to date,
	// empty if they are.
	Freshness func() (first int64, cause string)
	// RecordProof writes a proof. An error that wraps metadata.ErrChanged means that the hold is over.
	RecordProof func(context.Context, metadata.Statement) error
	// RecordSuspicion writes a suspicion. It returns the errors of RecordProof.
	RecordSuspicion func(context.Context, metadata.Statement) error
	// CheckWritable returns an error if etcd would refuse statements.
	CheckWritable func(context.Context) error
	Explain       func(error) string // an error of etcd as a sentence

	Log zerolog.Logger
}

// Witness watches the processes of this machine that hold locks, and proves their end. Make one with [New].
type Witness struct {
	cfg       Config
	processes processes
	cgroups   func(ids map[int64]bool) (living map[int64]int, private []string, err error) // see [cgroup.Find]
	open      func(pid, id int64) (openedCgroup, error)                                    // see [cgroup.OpenOf]
	pauses    pauses

	searchNow  chan struct{} // capacity 1: wakes the search for processes
	publishNow chan struct{} // capacity 1: wakes the writing of statements

	mu           sync.Mutex
	locks        map[string]*held // by the name of the lock
	running      map[holder]*process
	writeProblem string         // why etcd does not accept statements; empty if it does
	warnUnseen   sync.Once      // that a process is invisible
	warnCgroups  sync.Once      // that cgroups cannot be searched
	warnPrivate  sync.Once      // that some cgroups are private
	accepted     map[string]int // how many statements etcd has accepted, by cause
	failed       int            // attempts to write one that failed
	following    sync.WaitGroup // goroutines that wait for the end of processes
}

// pauses are durations that tests may shorten.
type pauses struct {
	command time.Duration // between searches for a command that outlives its process, at first
	absent  time.Duration // before the second search for a process that was not found
	poll    time.Duration // between checks of a process for which the kernel provides no handle
	idle    time.Duration // how long a process is watched after it held its last lock
	retry   time.Duration // after a failed write of a statement, at first
	viewLag time.Duration // after which the view should show a statement that etcd accepted
}

// held is a lock that is held by a process of this machine.
type held struct {
	hold
	statement   *metadata.Statement // once the holder has ended
	publishedAt time.Time           // when etcd accepted the statement; zero if it has not
	inView      bool                // the view shows a statement about this hold
	reported    bool                // it was logged and counted
}

// process is what the witness knows about a holder of locks.
type process struct {
	holder
	locks        map[string]*held
	misses       int       // consecutive searches that did not find it
	next         time.Time // when to search for it, while there is no watcher
	watchers     []watcher
	opened       openedCgroup // of its command, if it was found while the process lived
	unseen       bool
	exit         *exit         // set once it has ended, while its command may live
	commandPause time.Duration // before the next search for its command
	reported     bool          // a suspicion that the command outlives it was written
	idle         time.Time     // since when it has held no lock; zero while it holds one
}

// New returns a witness.
func New(c Config) *Witness {
	return &Witness{
		cfg: c,
		processes: processes{
			proc: proc{"/proc"}, seesAll: c.Machine.SeesAll(), open: openProcess,
		},
		cgroups: findCgroups, open: openCgroup,
		pauses: pauses{command: 10 * time.Millisecond, absent: 250 * time.Millisecond, poll: time.Second,
			idle: 30 * time.Second, retry: time.Second, viewLag: 10 * time.Second},
		searchNow: make(chan struct{}, 1), publishNow: make(chan struct{}, 1),
		locks: map[string]*held{}, running: map[holder]*process{}, accepted: map[string]int{},
	}
}

// Run follows the locks and the processes until ctx ends, then returns nil.
func (w *Witness) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	for _, part := range []func(context.Context){w.follow, w.watchProcesses, w.publishAll} {
		parts.Go(func() { part(ctx) })
	}
	parts.Wait()
	w.mu.Lock()
	for _, p := range w.running {
		p.close()
	}
	w.running = map[holder]*process{}
	w.mu.Unlock()
	w.following.Wait()
	return nil
}

// Synced returns an error if the witness is not up to date with the locks, or etcd does not accept its statements.
func (w *Witness) Synced() error {
	if _, cause := w.cfg.Freshness(); cause != "" {
		return errors.New("cannot follow the locks: " + cause)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.writeProblem != "" {
		return errors.New(w.writeProblem)
	}
	return nil
}

// wake makes the reader of the channel run once more.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
