package mutex

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/witness/holderproc"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// DefaultPrefix is where the locks live in etcd unless [Options].Prefix says otherwise.
const DefaultPrefix = "/mutexes/"

// Options apply to all locks of a [Client]. The zero Options are usable.
type Options struct {
	Prefix   string // where the locks live in etcd; [DefaultPrefix] when empty
	Owner    string // the program or service that holds the locks; the name of the running program when empty
	Hostname string // the machine or pod; the system's host name when empty

	// Process identifies this process in the records, so that a witness can prove that it ended. If nil, New fills it
	// in from /proc and the environment; an empty one identifies nothing.
	Process *metadata.Process

	// Defaults apply to every lock; the options of the call override them.
	Defaults []Option

	// ContextOptions returns options for a lock from the context of the call that takes it, such as an [Attribute] with
	// a trace id; may be nil. They override Defaults, and the options of the call override them.
	ContextOptions func(ctx context.Context) []Option

	// AttemptTimeout is how long a request waits for etcd's answer before it is sent again, to another member if there
	// is one; 2s when zero, at most a minute. A request gets at most a third of the time its caller has left.
	AttemptTimeout time.Duration

	// RequestTimeout bounds the calls that must not wait forever, whatever the caller's context: TryLock, Unlock and
	// Close; 15s when zero.
	RequestTimeout time.Duration

	// Logger logs what cannot be returned to a caller: lost holds, background cleanup. nil logs nothing.
	Logger *slog.Logger

	Hooks Hooks            // observe the locks
	Now   func() time.Time // the wall clock for records; time.Now when nil. Local deadlines never use it
}

// Client takes locks. It is safe for concurrent use; one per process and prefix is enough.
type Client struct {
	logger
	background

	etcd         *clientv3.Client
	layout       protocol.Layout
	opts         Options
	recordClient string // client member of the records
	pid          int64

	ctx    context.Context // ends with Close; its cause is [ErrClosed]
	cancel context.CancelCauseFunc
	// ends when Close begins, so that waiters leave the queue while requests can still be sent
	waitCtx     context.Context
	cancelWaits context.CancelCauseFunc
	retry       *etcdretry.Client

	cleanups   *cleanupQueue
	tombstones *tombstoneWriter // of what was cancelled
	releases   *tombstoneWriter // of releases with the caller's own writes
	leases     *leasePool
	holds      sync.Map // of uuid to *Lock
}

// New returns a client of the locks below the prefix in etcd. It sends etcd nothing. The etcd client stays the
// caller's: close it after this one. Give it all members as endpoints, reached directly and not through a proxy, a user
// that may read and write the prefix, and
//
//   - MaxUnaryRetries: 1, because this package repeats requests itself and knows what became of them;
//   - DialKeepAliveTime: 10 * time.Second. Without it, a connection whose other end vanished silently stays open for a
//     quarter of an hour or longer: all requests to that member go unanswered, and if there is no other member, holds
//     are lost when their time is up. This package can neither see the setting nor close the connection.
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
	o.Prefix = layout.Prefix()
	c := &Client{logger: logger{o.Logger}, etcd: etcd, layout: layout, opts: o, recordClient: library(),
		pid: int64(os.Getpid())}
	s := &outageLog{logger: c.logger, etcd: etcd}
	c.retry = etcdretry.New(etcd, etcdretry.Options{
		AttemptTimeout: o.AttemptTimeout, ClosedCause: ErrClosed, OnAnswer: s.answered, OnNoAnswer: s.unanswered,
	})
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.waitCtx, c.cancelWaits = context.WithCancelCause(c.ctx)
	c.cleanups = &cleanupQueue{logger: c.logger, background: &c.background, ctx: c.ctx}
	c.leases = &leasePool{etcd: etcd, retry: c.retry, ctx: c.ctx, background: &c.background, cleanups: c.cleanups}
	c.tombstones = &tombstoneWriter{retry: c.retry, ttl: protocol.CancelledTTL}
	c.releases = &tombstoneWriter{retry: c.retry, ttl: releaseTTL}
	if _, err := c.Internals().Draft("check"); err != nil {
		return nil, fmt.Errorf("mutex: options: %w", err)
	}
	return c, nil
}

// maxAttemptTimeout bounds how long a dead connection keeps a holder from extending, and a waiter from asking again.
const maxAttemptTimeout = time.Minute

func (o *Options) complete() error {
	o.Prefix = cmp.Or(o.Prefix, DefaultPrefix)
	o.Owner = cmp.Or(o.Owner, filepath.Base(os.Args[0]))
	if o.Hostname == "" {
		o.Hostname, _ = os.Hostname() // a machine without a name may lock all the same
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Process == nil {
		self := holderproc.Self(holderproc.System())
		o.Process = &self
	}
	o.AttemptTimeout = cmp.Or(o.AttemptTimeout, 2*time.Second)
	o.RequestTimeout = cmp.Or(o.RequestTimeout, 15*time.Second)
	switch {
	case o.AttemptTimeout < 0:
		return fmt.Errorf("AttemptTimeout is %v: it must not be negative", o.AttemptTimeout)
	case o.RequestTimeout < 0:
		return fmt.Errorf("RequestTimeout is %v: it must not be negative", o.RequestTimeout)
	case o.AttemptTimeout > maxAttemptTimeout:
		return fmt.Errorf("AttemptTimeout is %v: it must be at most %v, because a request whose connection died is "+
			"not sent again before", o.AttemptTimeout, maxAttemptTimeout)
	}
	return nil
}

// Options returns those of [New], with the defaults filled in. Their Prefix ends in "/".
func (c *Client) Options() Options { return c.opts }

// draft settles the options of a call and makes a record from them, without times.
func (c *Client) draft(name string, opts []Option) (set settings, d lockrecord.Draft, err error) {
	if c.isClosed() {
		return set, d, ErrClosed
	}
	if err = metadata.CheckName(name); err == nil {
		set, err = newSettings(name, c.opts.Owner, c.opts.Defaults, opts)
	}
	if err = cmp.Or(err, set.kind.checkName(name)); err != nil {
		return set, d, err
	}
	set.holder.Hostname = c.opts.Hostname
	set.holder.PID = c.pid
	process := *c.opts.Process
	process.Detached = process.Detached || set.detached
	return set, lockrecord.Draft{
		UUID: uuid.NewString(), Identity: set.holder, Client: c.recordClient, Attributes: set.attributes,
		Backtrace: callers(set.backtraceDepth), Process: process, LockDelay: set.lockDelay,
	}, nil
}

// Close ends the client. Waiting calls leave the queue and return [ErrClosed]. Close waits for them and for the cleanup
// of abandoned acquisitions, at most for the request timeout, and then at most as long again for running hooks. The
// error says how many cleanups are unfinished. Holds that were not unlocked stay held until they are auto-unlocked; the
// log names them, their contexts end with [ErrClosed], and Unlock still works on them.
func (c *Client) Close() error {
	if !c.beginClose() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.opts.RequestTimeout)
	defer cancel()
	c.cancelWaits(ErrClosed)
	c.endWaits(ctx)
	left := c.cleanups.drain(ctx)
	c.leases.close(ctx)
	c.logHeld()
	c.cancel(ErrClosed)
	rest, stop := context.WithTimeout(context.Background(), c.opts.RequestTimeout)
	defer stop()
	awaitAll(rest, &c.running) // not forever: a hook in one of them may have called Close
	if left > 0 {
		return fmt.Errorf("mutex: close: the outcome of %d requests is unknown: what they left is auto-unlocked in "+
			"its time", left)
	}
	return nil
}

func (c *Client) logHeld() {
	for _, hold := range c.holds.Range {
		if l := hold.(*Lock); l.err() == nil && !l.origin.adopted {
			c.log(slog.LevelWarn, "the client is closed, and this lock stays held until it is auto-unlocked: it was "+
				"not unlocked", l.logAttributes()...)
		}
	}
}

func (c *Client) isClosed() bool { return c.waitCtx.Err() != nil }

// moment is one moment on both clocks of the machine.
type moment struct{ monotonic, wall time.Time }

func (c *Client) moment() moment { return moment{time.Now(), c.wall()} }

// wall returns the time to write into records.
func (c *Client) wall() time.Time { return c.opts.Now().Truncate(time.Millisecond) }

// cancelClaim ends the attempt with this uuid, whose outcome is unknown: afterwards it holds nothing, never will, and
// stands in no queue. Which share the attempt may have is known only from the transaction that writes the tombstone.
func (c *Client) cancelClaim(ctx context.Context, lock string, k kind, uuid string) error {
	claim := k.claim(lock)
	r, err := c.tombstones.send(ctx, func(lease clientv3.LeaseID) locktxn.Txn {
		return locktxn.Cancel(c.layout, claim, uuid, lease)
	})
	if locktxn.IsNoSpace(err) { // for a tombstone: withdraw at least what the attempt acquired with the last space
		r, _ = c.retry.Send(ctx, locktxn.Withdraw(c.layout, claim, uuid))
	}
	if !claim.MultiHolder || r.TxnResponse == nil {
		return err
	}
	h := readHolders(c.layout, lock, k, r, 0, locktxn.HolderReads)
	if mine, ok := h.byUUID(uuid); ok {
		_, failed := c.retry.Send(ctx, locktxn.Withdraw(c.layout, locktxn.PlainClaim(mine.Name), uuid))
		err = errors.Join(err, failed)
	}
	return err
}

// leaveLater is leave in the background. Then it revokes the lease of the attempt, so that etcd refuses its requests
// that are still in flight.
func (c *Client) leaveLater(lock, uuid string, l *lease) {
	l.stop()
	c.cleanups.later(lock, uuid, protocol.TicketTTL, func(ctx context.Context) error {
		if _, err := c.leave(ctx, lock, uuid); err != nil {
			return err
		}
		return c.leases.revoke(ctx, l)
	})
}

// Internals is for packages of this module that are built on locks, such as jobs and leader. It is no part of the API:
// it gives access to internal types, which may change at any time.
func (c *Client) Internals() internals { return internals{c} }

type internals struct{ c *Client }

// Retry returns the sender of the client's requests.
func (i internals) Retry() *etcdretry.Client { return i.c.retry }

// Layout returns the layout of the keys of locks and jobs.
func (i internals) Layout() protocol.Layout { return i.c.layout }

// Draft returns the record that the lock would have if it were taken now with these options. It checks the name and the
// options, and sends no request.
func (i internals) Draft(name string, opts ...Option) (lockrecord.Draft, error) {
	set, d, err := i.c.draft(name, opts)
	if err != nil {
		return lockrecord.Draft{}, err
	}
	set.stamp(&d, i.c.wall())
	if _, err := d.Fields(); err != nil {
		return lockrecord.Draft{}, err
	}
	return d, nil
}

// WithDocuments returns an option that lets [Then] and [Lock.UnlockWith] write these keys although they lie below the
// prefix: they change together with the lock. It overrides [Reentrant].
func (internals) WithDocuments(d locktxn.Documents) Option {
	return func(s *settings) {
		s.documents = d
		s.reentrant = false
	}
}
