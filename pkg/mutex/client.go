package mutex

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdretry"
	"github.com/clustermutex/unlocker/internal/holderproc"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// DefaultPrefix is where the locks live in etcd unless [Options] say otherwise.
const DefaultPrefix = "/mutexes/"

// Options apply to all locks of a [Client]. The zero Options are usable.
type Options struct {
	Prefix   string // where the locks live in etcd; [DefaultPrefix] when empty
	Owner    string // the program or service that holds the locks; the name of the running program when empty
	Hostname string // the machine or pod; the system's host name when empty

	// Process identifies this process in the records, so that a witness can prove its end and its locks need not wait
	// for their deadlines. nil is what New learns from /proc and the environment; an empty one says nothing.
	Process *metadata.Process

	// Defaults are applied to every lock before the options of the call, which win.
	Defaults []Option

	// AttemptTimeout is the longest that one request waits for etcd's answer before it is sent again, to another member
	// where there is one; 2s when zero, at most a minute. A request gets at most a third of the time that its caller
	// still has.
	AttemptTimeout time.Duration

	// RequestTimeout bounds what must never wait for ever, whatever the caller's context: TryLock, Unlock and Close.
	// 15s when zero.
	RequestTimeout time.Duration

	// Logger gets what no caller can be told: holds that were lost, cleanup in the background. nil is silent. Package
	// mutexlog makes one of a zerolog.Logger.
	Logger *slog.Logger

	// Hooks observe the locks, for metrics and the like.
	Hooks Hooks

	// Now is the wall clock that is written into records; time.Now when nil. Local deadlines never use it.
	Now func() time.Time
}

// Client takes locks. It is safe for concurrent use; one per process and prefix is enough.
type Client struct {
	etcd   *clientv3.Client
	layout protocol.Layout
	opts   Options
	about  string // client member of the records
	pid    int

	ctx    context.Context // ends with Close; its cause is [ErrClosed]
	cancel context.CancelCauseFunc
	// ends when Close begins, so that waiters leave the queue while they can
	waits   context.Context
	giveUps context.CancelCauseFunc
	retry   *etcdretry.Client

	silence silence
	quiet   atomic.Bool // a silence has begun

	cleanups   cleanups
	tombstones tombstones // of what was cancelled
	releases   tombstones // of releases with the caller's own writes
	leases     leases
	traces     traces
	holds      holds

	mu      sync.Mutex
	closing bool           // nothing is taken any more
	closed  bool           // nothing is begun in the background any more
	waiting sync.WaitGroup // calls that wait for a lock
	wg      sync.WaitGroup // goroutines of holds and cleanups
}

// New returns a client of the locks below the prefix in etcd. It sends etcd nothing. The etcd client stays the
// caller's: close it after this one. Make it with
//
//   - MaxUnaryRetries: 1, because this package repeats requests by itself and knows what became of them;
//   - DialKeepAliveTime: 10 * time.Second. Without it a connection whose other end is gone without a word, as when a
//     machine, a firewall or a network died, is kept for a quarter of an hour and longer: it answers nothing, all
//     requests to that member go there, and where it is the only one holds are lost when their time is over. This
//     package cannot see the setting nor close the connection; it says in the log when a connection that is open does
//     not answer.
func New(etcd *clientv3.Client, o Options) (*Client, error) {
	if etcd == nil {
		return nil, errors.New("mutex: no etcd client was given")
	}
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("mutex: %w", err)
	}
	layout, err := protocol.NewLayout(o.Prefix)
	if err != nil {
		return nil, fmt.Errorf("mutex: %w", err)
	}
	c := &Client{etcd: etcd, layout: layout, opts: o, about: library(), pid: os.Getpid()}
	c.retry = etcdretry.New(etcd, etcdretry.Options{
		AttemptTimeout: o.AttemptTimeout, Closed: ErrClosed, Answered: c.answered, Unanswered: c.unanswered,
	})
	c.tombstones.life = protocol.CancelledTTL
	c.releases.life = releaseLife
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.waits, c.giveUps = context.WithCancelCause(c.ctx)
	if _, _, err := c.newAcquisition("check", nil); err != nil {
		return nil, fmt.Errorf("mutex: options: %w", err)
	}
	return c, nil
}

// maxAttemptTimeout bounds how long a dead connection keeps a holder from extending, and a waiter from asking again.
const maxAttemptTimeout = time.Minute

// complete fills in the defaults.
func (o *Options) complete() error {
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if o.Owner == "" {
		o.Owner = filepath.Base(os.Args[0])
	}
	if o.Hostname == "" {
		o.Hostname, _ = os.Hostname() // a machine without a name is no reason not to lock
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Process == nil {
		self := holderproc.Self(holderproc.System())
		o.Process = &self
	}
	for _, d := range []struct {
		name     string
		value    *time.Duration
		standard time.Duration
	}{{"attempt timeout", &o.AttemptTimeout, 2 * time.Second},
		{"request timeout", &o.RequestTimeout, 15 * time.Second}} {
		if *d.value < 0 {
			return fmt.Errorf("the %s is %v, it must be positive", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	if o.AttemptTimeout > maxAttemptTimeout {
		return fmt.Errorf("the attempt timeout is %v, it must be at most %v: a request whose connection died is not "+
			"sent again before",
			o.AttemptTimeout, maxAttemptTimeout)
	}
	return nil
}

// Prefix is where the locks live in etcd, with its final "/".
func (c *Client) Prefix() string { return c.layout.Prefix() }

// Options are those of [New], with the defaults filled in.
func (c *Client) Options() Options { return c.opts }

// Etcd is how the client asks etcd, for packages of this module that are built on locks: its type is internal.
func (c *Client) Etcd() *etcdretry.Client { return c.retry }

// Draft is what the record of a lock that is taken now with these options would say. The error is what is wrong with
// the name or the options; etcd is not asked.
func (c *Client) Draft(name string, opts ...Option) (metadata.Draft, error) {
	a, _, err := c.newAcquisition(name, opts)
	if err != nil {
		return metadata.Draft{}, err
	}
	return a.draft, nil
}

// Close ends the client. Waiting calls leave the queue and end with [ErrClosed]. Close waits for them and for the
// cleanup of acquisitions that were given up, no longer than the request timeout, and then as long at most for running
// hooks. The error says how many cleanups are unfinished. Holds that were not unlocked stay held until they are
// auto-unlocked, as when a process dies: their contexts end with [ErrClosed], and their Unlock still works.
func (c *Client) Close() error {
	c.mu.Lock()
	first := !c.closing
	c.closing = true
	c.mu.Unlock()
	if !first {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.opts.RequestTimeout)
	defer cancel()
	c.giveUps(ErrClosed)
	awaitAll(ctx, &c.waiting)
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	left := c.cleanups.drain(ctx)
	c.closeLeases(ctx)
	c.cancel(ErrClosed)
	c.rest()
	if left > 0 {
		return fmt.Errorf("mutex: close: the outcome of %d requests is unknown: what they left is auto-unlocked in "+
			"its time", left)
	}
	return nil
}

// rest waits for what runs in the background, but not for ever: a hook there may have called Close.
func (c *Client) rest() {
	ctx, cancel := context.WithTimeout(context.Background(), c.opts.RequestTimeout)
	defer cancel()
	awaitAll(ctx, &c.wg)
}

// awaitAll waits until all have ended, or ctx has.
func awaitAll(ctx context.Context, all *sync.WaitGroup) {
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// beginWait counts one more call that waits for a lock, until done, unless the client is closed.
func (c *Client) beginWait() (done func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return nil, false
	}
	c.waiting.Add(1)
	return c.waiting.Done, true
}

// spawn runs f in a goroutine that Close waits for, unless the client is closed.
func (c *Client) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Go(f)
	return true
}

// isClosed reports whether Close has begun.
func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}
