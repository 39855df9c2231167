//go:build conformance

package conformance

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// goDriver is the driver of the Go client. It runs in a process of its own: this test binary once more. It is also the
// example for the drivers of other languages.
type goDriver struct {
	out    *json.Encoder
	writes sync.Mutex
	fault  *fault // a rule that it breaks on purpose; nil for none

	mu      sync.Mutex
	timeout time.Duration // of a try
	etcd    *clientv3.Client
	client  *mutex.Client
	locks   map[int]*goLock
	cancels map[int]context.CancelCauseFunc // of waiting acquisitions, by request
}

type goLock struct {
	goHold
	number int
}

// goHold is a lock, or several that were taken together.
type goHold interface {
	Unlock() error
	Alive(context.Context, ...string) error
	Context() context.Context
	Request() *metadata.Request
}

// goRequest has the members of all requests.
type goRequest struct {
	ID int    `json:"id"`
	Do string `json:"do"`

	Endpoints             []string
	Prefix, Owner         string
	User, Password        string
	CA, Cert, Key         string
	Timeout               float64
	Name, Purpose         string
	NameBase64            []byte `json:"name_base64"`
	Wait                  *float64
	AlertAfter            float64 `json:"alert_after"`
	UnlockAfter           float64 `json:"unlock_after"`
	Attributes            map[string]any
	Heartbeat             bool
	Lock                  json.RawMessage
	Progress              string
	Request               int
	Segment, Text         string
	Fields                []vectorField
	Foreign               []string
	Step, Kind            string
	UUID, Value           string
	Token                 int64
	ValueBase64           []byte `json:"value_base64"`
	Input, Body, Answered json.RawMessage
	goWants
}

// runGoDriver answers requests until the input ends.
func runGoDriver(in io.Reader, out io.Writer, broken string) error {
	d := &goDriver{out: json.NewEncoder(out), locks: map[int]*goLock{}, cancels: map[int]context.CancelCauseFunc{}}
	if broken != "" {
		d.fault = faultNamed(broken)
		if d.fault == nil {
			return fmt.Errorf("there is no fault %q", broken)
		}
	}
	go d.endBySignal()
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			if d.fault != nil && d.fault.ends != nil {
				d.fault.ends(d)
			}
			return nil // at once: what is held stays held, as when a process dies
		}
		if err != nil {
			return err
		}
		var r goRequest
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		d.fault.change(&r)
		d.take(r)
	}
}

// endBySignal gives back what there is, and ends the process as the signal would have.
func (d *goDriver) endBySignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	got := (<-signals).(syscall.Signal)
	if d.fault == nil || !d.fault.leaves {
		d.giveBack()
	}
	signal.Reset(got)
	syscall.Kill(os.Getpid(), got)
}

// giveBack leaves the queues and releases the locks, for two seconds at most.
func (d *goDriver) giveBack() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.mu.Lock()
		for _, cancel := range d.cancels {
			cancel(errCancelled)
		}
		d.mu.Unlock()
		d.releaseAll()
		if d.client != nil {
			d.client.Close()
		}
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Second):
	}
}

// take answers a request, in a goroutine of its own if that can last.
func (d *goDriver) take(r goRequest) {
	switch r.Do {
	case "acquire", "once":
		ctx, cancel := context.WithCancelCause(context.Background())
		d.mu.Lock()
		d.cancels[r.ID] = cancel
		d.mu.Unlock()
		take := d.acquire
		if r.Do == "once" {
			take = d.once
		}
		go d.answer(r, func() (map[string]any, error) { return take(ctx, r) })
	case "alive", "release":
		go d.answer(r, func() (map[string]any, error) { return d.later(r) })
	default:
		d.answer(r, func() (map[string]any, error) { return d.now(r) })
	}
}

func (d *goDriver) answer(r goRequest, do func() (map[string]any, error)) {
	members, err := do()
	if members == nil {
		members = map[string]any{}
	}
	if err != nil {
		explain(members, err, r.Wait != nil && *r.Wait == 0)
	}
	members["id"] = r.ID
	d.write(members)
}

func (d *goDriver) write(members map[string]any) {
	d.writes.Lock()
	defer d.writes.Unlock()
	if members = d.fault.say(members); members != nil {
		d.out.Encode(members)
	}
}

// errCancelled is why an acquisition ends that was given up by request.
var errCancelled = errors.New("cancelled by request")

// errUnsupported is the answer to what this driver's info says that it lacks.
var errUnsupported = errors.New("unsupported")

// explain turns an error into members of the answer.
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
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, mutex.ErrUnknown), locktxn.NoSpace(err):
		members["error"] = "unavailable"
	default:
		members["error"] = "refused"
	}
}

// reasonOf is the word for why a lock was lost.
func reasonOf(lost *mutex.LostError) string {
	switch {
	case !lost.Certain:
		return "deadline"
	case lost.Ending != nil:
		return lost.Ending.Ended
	case lost.Holder != nil:
		return "replaced"
	}
	return "deleted"
}

// now answers what does not wait for etcd.
func (d *goDriver) now(r goRequest) (map[string]any, error) {
	switch r.Do {
	case "info":
		return map[string]any{"client": "go", "levels": []string{"basic", "queue", "kinds", "jobs"}, "kinds": goKinds(),
			"lacks": []string{"transactions", "durations", "gateway", "exit"}}, nil
	case "open":
		return nil, d.open(r)
	case "check":
		return d.check(d.lock(r)), nil
	case "cancel":
		d.mu.Lock()
		cancel := d.cancels[r.Request]
		d.mu.Unlock()
		if cancel != nil {
			cancel(errCancelled)
		}
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
	case "decode":
		return decodeRecord(r), nil
	case "document":
		return decodeDocument(r), nil
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
	client, err := mutex.New(etcd, mutex.Options{Prefix: r.Prefix, Owner: r.Owner,
		AttemptTimeout: seconds(r.Timeout)})
	if err != nil {
		return errors.Join(err, etcd.Close())
	}
	d.timeout = seconds(r.Timeout)
	d.etcd, d.client = etcd, client
	return nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// forever is the longest hold of a heartbeat here.
const forever = time.Hour

func (d *goDriver) acquire(ctx context.Context, r goRequest) (map[string]any, error) {
	l := &goLock{number: r.ID}
	opts := d.options(r, l)
	try := r.Wait != nil && *r.Wait == 0
	if r.Wait != nil {
		most := seconds(*r.Wait)
		if try {
			most = d.timeout
		}
		limited, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		ctx = limited
	}
	hold, first, err := d.hold(ctx, r, try, opts)
	if err != nil {
		return nil, err
	}
	l.goHold = hold
	d.mu.Lock()
	d.locks[l.number] = l
	d.mu.Unlock()
	go d.tellLost(l)
	return map[string]any{"lock": l.number, "uuid": first.UUID(), "token": first.Token()}, nil
}

// options are those of a request.
func (d *goDriver) options(r goRequest, l *goLock) []mutex.Option {
	asked := func(request metadata.Request) {
		d.write(map[string]any{"event": "asked", "lock": l.number, "by": text.Prose(request.By),
			"reason": text.Prose(request.Reason)})
	}
	opts := []mutex.Option{mutex.Purpose(r.Purpose), mutex.OnAsked(asked)}
	if d.fault != nil {
		opts = append(opts, d.fault.options...)
	}
	if r.AlertAfter != 0 {
		opts = append(opts, mutex.AlertAfter(seconds(r.AlertAfter)))
	}
	if r.UnlockAfter != 0 {
		opts = append(opts, mutex.AutoUnlockAfter(seconds(r.UnlockAfter)))
	}
	if r.Heartbeat {
		opts = append(opts, mutex.Heartbeat(forever))
	}
	for name, value := range r.Attributes {
		opts = append(opts, mutex.Attribute(name, value))
	}
	return append(opts, r.goWants.options(r.Kind)...)
}

func (d *goDriver) lock(r goRequest) *goLock {
	number, _ := strconv.Atoi(string(r.Lock))
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.locks[number]
}

// later does what waits for etcd with a lock that is held.
func (d *goDriver) later(r goRequest) (map[string]any, error) {
	l := d.lock(r)
	if r.Do == "release" {
		return nil, l.Unlock()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	return nil, l.Alive(ctx, r.Progress)
}

func (d *goDriver) check(l *goLock) map[string]any {
	members := map[string]any{"lost": nil, "asked": nil}
	var lost *mutex.LostError
	if errors.As(context.Cause(l.Context()), &lost) {
		members["lost"] = reasonOf(lost)
	}
	if r := l.Request(); r != nil {
		members["asked"] = map[string]any{"by": text.Prose(r.By), "reason": text.Prose(r.Reason)}
	}
	return members
}

// tellLost sends the event when the lock is lost.
func (d *goDriver) tellLost(l *goLock) {
	<-l.Context().Done()
	var lost *mutex.LostError
	if errors.As(context.Cause(l.Context()), &lost) {
		d.write(map[string]any{"event": "lost", "lock": l.number, "reason": reasonOf(lost)})
	}
}

// decodeRecord reads a record of the vectors.
func decodeRecord(r goRequest) map[string]any {
	var lock string
	json.Unmarshal(r.Lock, &lock)
	record := metadata.Decode(lock, metadataFields(r.Fields), r.Foreign...)
	decoded := map[string]any{}
	put := func(name, value string) {
		if value != "" {
			decoded[name] = value
		}
	}
	at := func(name string, t time.Time) {
		if !t.IsZero() {
			decoded[name] = metadata.FormatTime(t)
		}
	}
	put("uuid", record.UUID)
	put("owner", record.Owner)
	put("hostname", record.Hostname)
	put("purpose", record.Purpose)
	put("backtrace", record.Backtrace)
	put("client", record.Client)
	at("alert_at", record.AlertAt)
	at("auto_unlock_at", record.AutoUnlockAt)
	at("locked_at", record.LockedAt)
	if record.PID != 0 {
		decoded["pid"] = record.PID
	}
	return map[string]any{"decoded": decoded, "malformed": record.Malformed()}
}

// decodeDocument reads what others write for a hold, or about it. What is ignored is nil.
func decodeDocument(r goRequest) map[string]any {
	value := r.Value + string(r.ValueBase64)
	field := map[string]string{"request": metadata.FieldAsked, "extension": metadata.FieldExtended,
		"acknowledgement": metadata.FieldAcknowledged}[r.Kind]
	record := metadata.Decode("a", []metadata.Field{
		{Name: metadata.FieldUUID, Value: r.UUID, CreateRevision: r.Token, ModRevision: r.Token},
		{Name: field, Value: value, CreateRevision: r.Token + 1, ModRevision: r.Token + 1},
	})
	var document any
	switch r.Kind {
	case "request":
		document = record.Asked
	case "extension":
		document = record.Extended
	case "acknowledgement":
		document = record.Acknowledged
	case "ending":
		document = readable[metadata.Ending](value)
	case "ticket":
		document = readable[metadata.Ticket](value)
	case "delay":
		var lock string
		json.Unmarshal(r.Lock, &lock)
		document = protocol.ReadDelay(lock, protocol.KV{Value: []byte(value)})
	}
	return map[string]any{"decoded": document}
}

// readable is the document, nil where it cannot be read.
func readable[T metadata.Ending | metadata.Ticket](value string) *T {
	document, err := protocol.Unmarshal[T]([]byte(value))
	if err != nil {
		return nil
	}
	return &document
}

// vectorField is a field of a record in vectors.json.
type vectorField struct {
	Name        string `json:"name"`
	Value       string `json:"value"`
	Bytes       string `json:"value_base64,omitempty"`
	ModRevision int64  `json:"mod_revision,omitempty"`
}

func metadataFields(fields []vectorField) (all []metadata.Field) {
	for _, f := range fields {
		bytes, _ := base64.StdEncoding.DecodeString(f.Bytes)
		revision := f.ModRevision
		if revision == 0 {
			revision = 7
		}
		all = append(all, metadata.Field{Name: f.Name, Value: f.Value + string(bytes), CreateRevision: revision,
			ModRevision: revision})
	}
	return all
}

// driverVariable makes this test binary a Go driver. Its value is the fault that the driver has, or "none".
const driverVariable = "CONFORMANCE_DRIVER"

// goDriverProcess does not return in a process that is a Go driver.
func goDriverProcess() {
	broken, isDriver := os.LookupEnv(driverVariable)
	if !isDriver {
		return
	}
	if err := runGoDriver(os.Stdin, os.Stdout, strings.TrimPrefix(broken, "none")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
