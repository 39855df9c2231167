package cli

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

type takeFlags struct {
	names          names
	owner, purpose string
	attributes     []string
	wait           waitTimeout
	skipQueue      bool
	lockDelay      time.Duration

	// For semaphores and read-write locks.
	semaphore, weight int
	shared, exclusive bool

	given *pflag.FlagSet
}

func (t *takeFlags) add(cmd *cobra.Command, wait waitTimeout) {
	t.wait = wait
	t.names.flag(cmd)
	f := cmd.Flags()
	t.given = f
	f.StringVar(&t.purpose, "purpose", "",
		"`text` that says what the lock is for; alerts show it")
	f.StringArrayVar(&t.attributes, "attr", nil, "an attribute to show, as `name=value`; repeatable")
	f.Var(&t.wait, "wait", "how long to wait for the lock: a duration, 0 to try once, or forever")
	f.BoolVar(&t.skipQueue, "without-queue", false, "take the lock as soon as it is free, ahead of the queue")
	f.DurationVar(&t.lockDelay, "lock-delay", 0,
		"keep others out after auto-unlock or force unlock, up to 1h; 0 overrides the unlocker's default")
	f.IntVar(&t.semaphore, "semaphore", 0,
		"the lock is a semaphore with this many permits in total; take one of them")
	f.IntVar(&t.weight, "weight", 1, "with --semaphore: how many permits to take, all or none")
	f.BoolVar(&t.shared, "shared", false,
		"the lock is a read-write lock; take it for reading, along with other readers")
	f.BoolVar(&t.exclusive, "exclusive", false,
		"take the read-write lock for writing, or the whole semaphore, alone")
}

// options returns the options for the library, except durations. Attributes are text, so that a build number such as
// 0017 keeps its zeros.
func (t *takeFlags) options(name string) ([]mutex.Option, error) {
	options, err := t.kindOptions(name)
	if err != nil {
		return nil, err
	}
	options = append(options,
		mutex.Owner(t.owner), mutex.Purpose(t.purpose),
		mutex.BacktraceDepth(0), // it would show the code of mutexctl
		mutex.Attribute("user", userName()))
	if t.skipQueue {
		options = append(options, mutex.WithoutQueue())
	}
	if t.given.Changed("lock-delay") {
		if t.lockDelay < 0 || t.lockDelay > metadata.MaxLockDelay {
			return nil, usageErrorf("--lock-delay is %v: it must be between 0 and %v", t.lockDelay,
				metadata.MaxLockDelay)
		}
		options = append(options, mutex.LockDelay(t.lockDelay))
	}
	for _, pair := range t.attributes {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, usageErrorf("--attr %s: want name=value", text.Visible(pair))
		}
		options = append(options, mutex.Attribute(name, value))
	}
	return options, nil
}

// kind returns the requested kind of hold; empty for an ordinary lock.
func (t *takeFlags) kind() string {
	switch {
	case t.given.Changed("semaphore"):
		return metadata.KindSemaphore
	case t.shared:
		return metadata.KindShared
	case t.exclusive:
		return metadata.KindExclusive
	}
	return ""
}

// kindOptions returns the options for the library that say how the lock is shared; it checks flags and name.
func (t *takeFlags) kindOptions(name string) ([]mutex.Option, error) {
	kind := t.kind()
	switch {
	case kind == metadata.KindSemaphore && (t.shared || t.exclusive), t.shared && t.exclusive:
		return nil, usageErrorf("--semaphore, --shared and --exclusive exclude each other: give only one")
	case kind != metadata.KindSemaphore && t.given.Changed("weight"):
		return nil, usageErrorf("--weight is a number of permits: it goes with --semaphore")
	case kind == "":
		return nil, nil
	}
	if err := t.checkName(name); err != nil {
		return nil, err
	}
	switch kind {
	case metadata.KindShared:
		return []mutex.Option{mutex.Shared()}, nil
	case metadata.KindExclusive:
		return []mutex.Option{mutex.Exclusive()}, nil
	}
	switch {
	case t.semaphore < 1 || t.semaphore > mutex.MaxLimit:
		return nil, usageErrorf("--semaphore is %d: it must be between 1 and %d", t.semaphore, mutex.MaxLimit)
	case t.weight < 1:
		return nil, usageErrorf("--weight is %d: it must be at least 1", t.weight)
	case t.weight > t.semaphore:
		return nil, usageErrorf("--weight is %d, the semaphore has only %s", t.weight,
			text.Count(t.semaphore, "permit"))
	}
	return []mutex.Option{mutex.Semaphore(t.semaphore), mutex.Weight(t.weight)}, nil
}

// maxReaders is the highest number of a reader for which the library leaves room in the name.
const maxReaders = 99_999

// checkName returns an error for names that the library would refuse, before any request is sent.
func (t *takeFlags) checkName(name string) error {
	if lock, number, ok := metadata.ParseShare(name); ok {
		return usageErrorf("%s is the name of share %d of %s: leave out # and number", text.Visible(name),
			number, text.Visible(lock))
	}
	maxNumber := maxReaders
	if t.kind() == metadata.KindSemaphore {
		maxNumber = max(t.semaphore, 1)
	}
	room := metadata.MaxNameBytes - len("#"+strconv.Itoa(maxNumber))
	if len(name) > room {
		return usageErrorf("the lock name has %d bytes, at most %d leave room for the numbers of its holders",
			len(name), room)
	}
	return nil
}

// waitTimeout is the value of --wait: a duration, 0 for a single try, or forever.
type waitTimeout struct {
	limit   time.Duration
	forever bool
	given   bool // on the command line, not by default
}

func (p *waitTimeout) String() string {
	if p.forever {
		return "forever"
	}
	return p.limit.String()
}

func (p *waitTimeout) Type() string { return "duration" }

func (p *waitTimeout) Set(s string) error {
	if s == "forever" {
		*p = waitTimeout{forever: true, given: true}
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return errors.New("want a duration such as 30s or 5m, 0 to try once, or forever")
	}
	*p = waitTimeout{limit: d, given: true}
	return nil
}

func (p *waitTimeout) triesOnce() bool { return !p.forever && p.limit == 0 }

// outlastsOutage reports whether to wait for an unreachable etcd, too. Without --wait it is false, so that a wrong
// endpoint does not block a script forever.
func (p *waitTimeout) outlastsOutage() bool { return p.given && !p.triesOnce() }

// withTimeout returns a context that ends when the wait may last no longer. A single try needs none.
func (p *waitTimeout) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.forever || p.triesOnce() {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, p.limit)
}
