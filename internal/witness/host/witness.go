package host

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Config is what a witness needs. All functions are required.
type Config struct {
	ID      string // of this witness, for its statements
	Machine Machine

	// Locks returns the locks in etcd, at least those that [Machine.Concerns]. Changed returns a channel that is closed
	// when they or their freshness change.
	Locks   func() []*metadata.Record
	Changed func() <-chan struct{}
	// Fresh returns the revision of the first list of the locks, 0 before it, and why the locks are not current; empty
	// if they are.
	Fresh func() (first int64, cause string)
	// State writes a statement. An error that wraps metadata.ErrChanged means that there is nothing left to state.
	State func(context.Context, metadata.Statement) error
	// Suspect writes a suspicion, with the errors of State.
	Suspect func(context.Context, metadata.Statement) error
	// Prove returns an error if etcd would refuse statements.
	Prove   func(context.Context) error
	Explain func(error) string // an error of etcd as a sentence

	Now func() time.Time
	Log zerolog.Logger
}

// Witness states the ends of processes of this machine that hold locks. Make one with [New].
type Witness struct {
	cfg       Config
	processes processes
	cgroups   func(ids map[int64]bool) (living map[int64]int, err error) // see [cgroup.Find]
	pauses    pauses

	find    chan struct{} // has room for one: processes have to be looked for
	publish chan struct{} // has room for one: there are statements to send

	mu        sync.Mutex
	locks     map[string]*held // by the name of the lock
	running   map[holder]*process
	mute      string // why nothing can be stated
	warned    bool   // of a process that cannot be seen
	blind     bool   // cannot see cgroups, and has logged it
	counts    counts
	following sync.WaitGroup // goroutines that wait for the end of processes
}

// pauses are durations that tests may shorten.
type pauses struct {
	soon  time.Duration // until a command that outlives its process is looked at again, at first
	again time.Duration // until an absent process is looked for once more
	poll  time.Duration // between looks at a process for which the kernel gives no handle
	idle  time.Duration // how long a process that no longer holds a lock is watched
	retry time.Duration // after a statement that failed, at first
	echo  time.Duration // how soon a view shows what was published
}

func defaultPauses() pauses {
	return pauses{soon: 10 * time.Millisecond, again: 250 * time.Millisecond, poll: time.Second, idle: 30 * time.Second,
		retry: time.Second, echo: 10 * time.Second}
}

// held is a lock that is held by a process of this machine.
type held struct {
	hold
	statement *metadata.Statement // once the holder has ended
	published bool                // etcd accepted the statement and, as far as is known, has it
	at        time.Time           // when it did
	shown     bool                // the view shows a statement about this hold
	reported  bool                // it was logged and counted
}

// process is a holder of locks.
type process struct {
	holder
	locks    map[string]*held
	looks    int       // consecutive looks that found nothing
	next     time.Time // when to look for it, while there is no watcher
	watchers []watcher
	unseen   bool
	over     *exit         // once it has ended, as long as its command lives
	pause    time.Duration // until the command is looked at again
	reported bool          // etcd knows that the command lives
	idle     time.Time     // since when it has held nothing; zero while it holds something
}

// New returns a witness.
func New(c Config) *Witness {
	return &Witness{
		cfg: c,
		processes: processes{
			proc: proc{"/proc"}, all: c.Machine.SeesAll(), open: openProcess,
		},
		cgroups: findCgroups, pauses: defaultPauses(),
		find: make(chan struct{}, 1), publish: make(chan struct{}, 1),
		locks: map[string]*held{}, running: map[holder]*process{}, counts: counts{stated: map[string]int{}},
	}
}

// Run follows the locks and the processes until ctx ends, then returns nil.
func (w *Witness) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	for _, part := range []func(context.Context){w.follow, w.look, w.publishAll} {
		parts.Go(func() { part(ctx) })
	}
	parts.Wait()
	w.mu.Lock()
	for _, p := range w.running {
		closeAll(p.watchers)
	}
	w.running = map[holder]*process{}
	w.mu.Unlock()
	w.following.Wait()
	return nil
}

// Synced returns nil if the witness knows the current locks and may make statements.
func (w *Witness) Synced() error {
	if _, cause := w.cfg.Fresh(); cause != "" {
		return errors.New("the locks cannot be followed: " + cause)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mute != "" {
		return errors.New(w.mute)
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

// causes returns the causes that a host witness states.
func causes() []string { return []string{metadata.CauseProcessEnded, metadata.CauseRebooted} }
