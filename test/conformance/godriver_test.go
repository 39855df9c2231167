//go:build conformance

package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/jobs"
	"github.com/clustermutex/unlocker/pkg/leader"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// goDriver is the driver of the Go client. It runs this test binary as a separate process. It is also the example for
// the drivers of other languages. The packages that decode records and documents test their vectors.
type goDriver struct {
	out    *json.Encoder
	writes sync.Mutex
	fault  *fault // a rule that it breaks on purpose

	mu      sync.Mutex
	timeout time.Duration // of a try
	client  *mutex.Client
	locks   map[int]goHold                  // by request
	cancels map[int]context.CancelCauseFunc // of waiting acquisitions, by request
}

// goHold is a lock, or several that were taken together.
type goHold interface {
	Unlock() error
	Alive(context.Context, ...string) error
	AliveFor(ctx context.Context, alertAfter, autoUnlockAfter time.Duration, progress ...string) error
	Context() context.Context
	FinishRequest() *metadata.FinishRequest
}

type goRequest struct {
	ID int    `json:"id"`
	Do string `json:"do"`

	Endpoints      []string
	Prefix, Owner  string
	User, Password string
	CA, Cert, Key  string
	Timeout        float64
	Name, Purpose  string
	UUID           string
	NameBase64     []byte `json:"name_base64"`
	Wait           *float64
	AlertAfter     float64 `json:"alert_after"`
	UnlockAfter    float64 `json:"auto_unlock_after"`
	Attributes     map[string]any
	Heartbeat      bool
	Lock           int
	Progress       string
	Request        int
	Segment, Text  string
	goWants
}

func (d *goDriver) run(in io.Reader) error {
	go d.endBySignal()
	for requests := json.NewDecoder(in); ; {
		var r goRequest
		err := requests.Decode(&r)
		if err == io.EOF {
			if d.fault.ends != nil {
				d.fault.ends(d)
			}
			return nil // at once: what is held stays held, as when a process dies
		}
		if err != nil {
			return err
		}
		if d.fault.request != nil {
			d.fault.request(&r)
		}
		d.take(r)
	}
}

// endBySignal releases everything, and ends the process as the signal would have.
func (d *goDriver) endBySignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	got := (<-signals).(syscall.Signal)
	signal.Reset(got)
	time.AfterFunc(2*time.Second, func() { syscall.Kill(os.Getpid(), got) })
	if !d.fault.leaves {
		d.giveBack()
	}
	syscall.Kill(os.Getpid(), got)
}

// giveBack leaves the queues and releases the locks.
func (d *goDriver) giveBack() {
	d.mu.Lock()
	for _, cancel := range d.cancels {
		cancel(errCancelled)
	}
	d.mu.Unlock()
	d.releaseAll()
	if d.client != nil {
		d.client.Close()
	}
}

func (d *goDriver) take(r goRequest) {
	ctx, cancel := context.WithCancelCause(context.Background())
	d.mu.Lock()
	d.cancels[r.ID] = cancel
	d.mu.Unlock()
	if slices.Contains([]string{"acquire", "once", "alive", "release"}, r.Do) {
		go d.answer(ctx, r)
	} else {
		d.answer(ctx, r)
	}
}

func (d *goDriver) answer(ctx context.Context, r goRequest) {
	members, err := d.do(ctx, r)
	if members == nil {
		members = map[string]any{}
	}
	if err != nil {
		explain(members, err, r.tries())
	}
	members["id"] = r.ID
	d.write(members)
}

func (r goRequest) tries() bool { return r.Do == "once" || r.Wait != nil && *r.Wait == 0 }

func (d *goDriver) write(members map[string]any) {
	d.writes.Lock()
	defer d.writes.Unlock()
	if d.fault.said != nil {
		members = d.fault.said(members)
	}
	if members != nil {
		d.out.Encode(members)
	}
}

var errCancelled = errors.New("cancelled by request")

// errUnsupported is the answer to requests that this driver does not claim to support.
var errUnsupported = errors.New("unsupported")

func explain(members map[string]any, err error, try bool) {
	members["message"] = err.Error()
	var held *mutex.HeldError
	var lost *mutex.LostError
	switch {
	case errors.Is(err, errUnsupported):
		members["error"] = "unsupported"
	case errors.Is(err, errCancelled):
		members["error"] = "cancelled"
	case errors.As(err, &held):
		members["error"] = "timeout"
		if try {
			members["error"] = "held"
		}
		members["holder"] = nil
		if h := held.Holder; h.Token != 0 {
			members["holder"] = map[string]any{"uuid": h.UUID, "owner": h.Owner, "hostname": h.Hostname,
				"purpose": h.Purpose}
		}
		if held.Position > 0 { // a try of a lock that is held does not count who waits
			members["waiting"] = held.Position - 1
		}
		members["delayed"] = held.Delay != nil
	case errors.As(err, &lost):
		members["error"] = "lost"
		members["reason"] = reasonOf(lost)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, metadata.ErrOutcomeUnknown), locktxn.IsNoSpace(err):
		members["error"] = "unavailable"
	default:
		members["error"] = "refused"
	}
}

// reasonOf returns the word for why a lock was lost.
func reasonOf(lost *mutex.LostError) string {
	switch {
	case !lost.Certain:
		return "deadline"
	case lost.Ending != nil:
		return lost.Ending.Cause
	case lost.Holder != nil:
		return "replaced"
	}
	return "deleted"
}

func (d *goDriver) do(ctx context.Context, r goRequest) (map[string]any, error) {
	switch r.Do {
	case "info":
		return map[string]any{"client": "go", "levels": levels, "kinds": kinds,
			"lacks": []string{"transactions", "gateway", "exit", "decode", "documents"}}, nil
	case "open":
		return nil, d.open(r)
	case "acquire":
		return d.acquire(ctx, r)
	case "once":
		return d.once(ctx, r)
	case "reserve":
		left, err := d.client.TryReserve(ctx, r.Name, r.Purpose, seconds(r.UnlockAfter))
		return map[string]any{"name": left.Name, "uuid": left.UUID, "token": left.Token}, err
	case "adopt":
		l, err := d.client.Adopt(ctx, r.Name, r.UUID)
		if err != nil {
			return nil, err
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.locks[r.ID] = l
		return map[string]any{"lock": r.ID, "uuid": l.UUID(), "token": l.Token()}, nil
	case "release":
		return nil, d.lock(r).Unlock()
	case "alive":
		ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		if r.UnlockAfter != 0 {
			return nil, d.lock(r).AliveFor(ctx, seconds(r.AlertAfter), seconds(r.UnlockAfter), r.Progress)
		}
		return nil, d.lock(r).Alive(ctx, r.Progress)
	case "check":
		return state(d.lock(r)), nil
	case "cancel":
		d.mu.Lock()
		defer d.mu.Unlock()
		d.cancels[r.Request](errCancelled)
		return nil, nil
	case "segment":
		name := r.Name + string(r.NameBase64)
		return map[string]any{"segment": protocol.EncodeName(name)}, metadata.CheckName(name)
	case "name":
		name, err := protocol.DecodeName(r.Segment)
		return map[string]any{"name": name}, err
	case "time":
		at, err := metadata.ParseTime(r.Text)
		return map[string]any{"seconds": strconv.FormatInt(at.Unix(), 10), "nanoseconds": at.Nanosecond()}, err
	}
	return nil, errUnsupported
}

func (d *goDriver) open(r goRequest) error {
	conf := etcdconn.Defaults()
	conf.Endpoints = r.Endpoints
	conf.User, conf.Password = r.User, r.Password
	conf.CACert = r.CA
	conf.Cert, conf.Key = r.Cert, r.Key
	etcd, err := etcdconn.New(conf, zerolog.Nop(), d.fault.dialOptions()...)
	if err != nil {
		return err
	}
	d.timeout = seconds(r.Timeout)
	d.client, err = mutex.New(etcd, mutex.Options{Prefix: r.Prefix, Owner: r.Owner, AttemptTimeout: d.timeout})
	return err
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (d *goDriver) acquire(ctx context.Context, r goRequest) (map[string]any, error) {
	if r.Wait != nil {
		most := seconds(*r.Wait)
		if r.tries() {
			most = d.timeout
		}
		limited, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		ctx = limited
	}
	l, first, err := d.hold(ctx, r, d.options(r))
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.locks[r.ID] = l
	d.mu.Unlock()
	go func() {
		<-l.Context().Done()
		if reason := lossOf(l); reason != nil {
			d.write(map[string]any{"event": "lost", "lock": r.ID, "reason": reason})
		}
	}()
	return map[string]any{"lock": r.ID, "uuid": first.UUID(), "token": first.Token()}, nil
}

func (d *goDriver) options(r goRequest) []mutex.Option {
	asked := func(request metadata.FinishRequest) {
		d.write(map[string]any{"event": "asked", "lock": r.ID, "by": text.Prose(request.By),
			"reason": text.Prose(request.Reason)})
	}
	opts := append([]mutex.Option{mutex.Purpose(r.Purpose), mutex.OnFinishRequest(asked)}, d.fault.options...)
	if r.AlertAfter != 0 {
		opts = append(opts, mutex.AlertAfter(seconds(r.AlertAfter)))
	}
	if r.UnlockAfter != 0 {
		opts = append(opts, mutex.AutoUnlockAfter(seconds(r.UnlockAfter)))
	}
	if r.Heartbeat {
		opts = append(opts, mutex.Heartbeat(time.Hour))
	}
	for name, value := range r.Attributes {
		opts = append(opts, mutex.Attribute(name, value))
	}
	for name, own := range r.Own {
		opts = append(opts, mutex.ForLock(name, own.options()...))
	}
	return append(opts, r.goKind.options()...)
}

func (d *goDriver) lock(r goRequest) goHold {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.locks[r.Lock]
}

func state(l goHold) map[string]any {
	members := map[string]any{"lost": lossOf(l), "asked": nil}
	if r := l.FinishRequest(); r != nil {
		members["asked"] = map[string]any{"by": text.Prose(r.By), "reason": text.Prose(r.Reason)}
	}
	return members
}

// lossOf returns the word for why a lock was lost; nil if it was not.
func lossOf(l goHold) any {
	if lost, isLost := errors.AsType[*mutex.LostError](context.Cause(l.Context())); isLost {
		return reasonOf(lost)
	}
	return nil
}

// goWants are the members of requests for other than plain locks.
type goWants struct {
	goKind
	Names         []string          // of several locks, all or none
	Own           map[string]goKind // of single ones
	Life          float64           // of a leader
	Address       string
	Every, Offset float64  // of a job that runs once per period
	Tick          *float64 // of one that runs for this tick
	Hold          float64  // how long it runs
	Fails         bool     // its end is an error, and the tick is to be given back
}

type goKind struct {
	Kind          string
	Limit, Weight int
}

var kinds = []string{"semaphore", "read-write", "together", "once", "back", "leader", "reserve"}

// errFails is the error of a job that must fail.
var errFails = errors.New("as it was asked to")

func (k goKind) options() []mutex.Option {
	switch k.Kind {
	case metadata.KindSemaphore:
		return []mutex.Option{mutex.Semaphore(k.Limit), mutex.Weight(max(k.Weight, 1))}
	case metadata.KindShared:
		return []mutex.Option{mutex.Shared()}
	case metadata.KindExclusive:
		return []mutex.Option{mutex.Exclusive()}
	}
	return nil
}

// hold takes the locks of a request; first is the first of several.
func (d *goDriver) hold(ctx context.Context, r goRequest, opts []mutex.Option) (goHold, *mutex.Lock, error) {
	switch {
	case len(r.Names) > 0:
		take := d.client.LockAll
		if r.tries() {
			take = d.client.TryLockAll
		}
		all, err := take(ctx, r.Names, opts...)
		if err != nil {
			return nil, nil, err
		}
		return all, all.All()[0], nil
	case r.Life > 0:
		l, err := leader.Campaign(ctx, d.client, r.Name, leader.Options{TTL: seconds(r.Life), Address: r.Address})
		return l, l, err
	case r.tries():
		l, err := d.client.TryLock(ctx, r.Name, opts...)
		return l, l, err
	case d.fault == withoutQueue:
		l, err := d.tryAgain(ctx, r.Name, opts)
		return l, l, err
	}
	l, err := d.client.Lock(ctx, r.Name, opts...)
	return l, l, err
}

func (d *goDriver) once(ctx context.Context, r goRequest) (map[string]any, error) {
	token := int64(0)
	work := func(ctx context.Context) error {
		token = mutex.FromContext(ctx).Token()
		select {
		case <-ctx.Done():
		case <-time.After(seconds(r.Hold)):
		}
		if r.Fails && ctx.Err() == nil {
			return errFails
		}
		return context.Cause(ctx)
	}
	opts := []jobs.Option{jobs.PeriodOffset(seconds(r.Offset)), jobs.LockOptions(d.options(r)...)}
	if r.Fails {
		opts = append(opts, jobs.RetryOnError())
	}
	run := func() (bool, error) { return jobs.OncePer(ctx, d.client, r.Name, seconds(r.Every), work, opts...) }
	if r.Tick != nil {
		tick := time.UnixMicro(int64(math.Round(*r.Tick * 1e6)))
		run = func() (bool, error) { return jobs.OnceAt(ctx, d.client, r.Name, tick, work, opts...) }
	}
	ran, err := run()
	if errors.Is(err, errFails) {
		err = nil
	}
	return map[string]any{"ran": ran, "token": token}, err
}

// driverVariable makes this test binary a Go driver. Its value is the driver's fault; none if empty.
const driverVariable = "CONFORMANCE_DRIVER"

// goDriverProcess does not return in a Go driver's process.
func goDriverProcess() {
	broken, isDriver := os.LookupEnv(driverVariable)
	if !isDriver {
		return
	}
	d := &goDriver{out: json.NewEncoder(os.Stdout), fault: faultNamed(broken), locks: map[int]goHold{},
		cancels: map[int]context.CancelCauseFunc{}}
	if err := d.run(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
