//go:build conformance

package conformance

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

type client struct {
	name    string
	place   int // among all clients
	command func() *exec.Cmd
	info    answer
}

// claims reports whether the client claims all of these levels and features, which are separated by spaces.
func (c *client) claims(needs string) bool {
	return !slices.ContainsFunc(strings.Fields(needs), func(need string) bool {
		switch {
		case slices.Contains(levels, need):
			return !slices.Contains(c.info.Levels, need)
		case slices.Contains(kinds, need):
			return !slices.Contains(c.info.Kinds, need)
		}
		return slices.Contains(c.info.Lacks, need)
	})
}

var levels = []string{"basic", "queue", "kinds", "jobs"}

// goClient returns the Go client, in a process that breaks the named rule, if any.
func goClient(broken string) *client {
	name := "go"
	if broken != "" {
		name += " without " + broken
	}
	return &client{name: name, command: func() *exec.Cmd { return proctest.Self(driverVariable, broken) }}
}

func scriptClient(dir string) *client {
	return &client{name: filepath.Base(dir), command: func() *exec.Cmd {
		cmd := exec.Command(filepath.Join(dir, "conformance", "run"))
		cmd.Dir = dir
		return cmd
	}}
}

type request map[string]any

type answer struct {
	ID      int
	Error   string
	Message string
	Reason  string

	Client        string
	Levels, Lacks []string
	Kinds         []string

	Lock    int
	UUID    string
	Token   json.RawMessage
	Holder  *holder
	Waiting *int
	Delayed bool
	Ran     bool

	Lost  *string
	Asked *askedBy

	Segment, Name string
	Seconds       string
	Nanoseconds   int64
	Decoded       map[string]any
	Malformed     bool
	Body          json.RawMessage
	Verdict       string

	Event string
	By    string

	line string
	at   time.Time
}

type holder struct{ UUID, Owner, Hostname, Purpose string }

// UnmarshalJSON also accepts a bare uuid, as in verdicts.
func (h *holder) UnmarshalJSON(text []byte) error {
	if strings.HasPrefix(string(text), `"`) {
		return json.Unmarshal(text, &h.UUID)
	}
	type plain holder
	return json.Unmarshal(text, (*plain)(h))
}

type askedBy struct{ By, Reason string }

type driver struct {
	t      testing.TB
	client *client
	proc   *proctest.Process
	in     io.WriteCloser

	mu      sync.Mutex
	sent    int
	waiting map[int]chan answer // closed at the end of its output, when there is why
	why     error
	events  []answer
	changed chan struct{} // closed when there is another event; nil when none will come
	stderr  proctest.Log
}

// start runs a driver until the test ends, with these variables in its environment.
func (c *client) start(t testing.TB, env ...string) *driver {
	d := &driver{t: t, client: c, waiting: map[int]chan answer{}, changed: make(chan struct{})}
	cmd := c.command()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that a kill gets its children, too
	//nolint:usetesting // what it started may still write when it ends
	scratch, err := os.MkdirTemp("", "conformance-")
	proctest.Must(t, err)
	cmd.Env = append(append(cmd.Environ(), "TMPDIR="+scratch), env...)
	t.Cleanup(func() { os.RemoveAll(scratch) }) // last: a driver that was killed cannot
	cmd.Stderr = &d.stderr
	out, outErr := cmd.StdoutPipe()
	d.in, err = cmd.StdinPipe()
	proctest.Must(t, errors.Join(outErr, err))
	d.proc, err = proctest.Launch(cmd)
	proctest.Must(t, err)
	go d.read(out)
	t.Cleanup(func() {
		d.kill()
		if text := d.stderr.String(); t.Failed() && text != "" {
			t.Logf("stderr of %s:\n%s", c.name, text[max(0, len(text)-8000):])
		}
	})
	return d
}

// read reads answers and events until the driver's output ends.
func (d *driver) read(out io.Reader) {
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		a := answer{line: strings.TrimSpace(line), at: time.Now()}
		if err == nil {
			err = json.Unmarshal([]byte(line), &a)
		}
		d.mu.Lock()
		if err != nil {
			d.why = fmt.Errorf("%s printed %q: %w", d.client.name, line, err)
			for _, waits := range d.waiting {
				close(waits)
			}
			close(d.changed)
			d.changed = nil
			d.mu.Unlock()
			return
		}
		if a.Event != "" {
			d.events = append(d.events, a)
			close(d.changed)
			d.changed = make(chan struct{})
		} else if waits := d.waiting[a.ID]; waits != nil {
			waits <- a
			delete(d.waiting, a.ID)
		}
		d.mu.Unlock()
	}
}

// kill ends the driver and its children like kill -9.
func (d *driver) kill() {
	syscall.Kill(-d.proc.PID(), syscall.SIGKILL)
	d.proc.Kill()
}

type call struct {
	d      *driver
	id     int
	asks   request
	answer chan answer
}

func (d *driver) send(r request) *call {
	d.t.Helper()
	d.mu.Lock()
	d.sent++
	c := &call{d: d, id: d.sent, asks: r, answer: make(chan answer, 1)}
	if d.waiting[c.id] = c.answer; d.why != nil {
		close(c.answer)
	}
	d.mu.Unlock()
	r["id"] = c.id
	line, err := json.Marshal(r)
	if err == nil {
		_, err = d.in.Write(append(line, '\n'))
	}
	if err != nil && d.proc.Running() {
		d.t.Fatalf("%s takes no request: %v", d.client.name, err)
	}
	return c
}

// outcome waits for the answer. It returns an error if there is none.
func (c *call) outcome() (answer, error) {
	select {
	case a, told := <-c.answer:
		if !told {
			return answer{}, fmt.Errorf("no answer to %v: %w", c.asks, c.d.why)
		}
		return a, nil
	case <-time.After(c.patience()):
		return answer{}, fmt.Errorf("%s did not answer %v within %v", c.d.client.name, c.asks, c.patience())
	}
}

// patience returns how long the answer may take. A driver may have to be compiled before its info, and an unlimited
// wait for a lock waits for everyone ahead.
func (c *call) patience() time.Duration {
	wait, isWait := c.asks["wait"]
	switch {
	case c.asks["do"] == "info":
		return 5 * *limit
	case isWait && wait == nil:
		return 3 * *limit
	}
	return *limit
}

func (c *call) wait() answer {
	c.d.t.Helper()
	a, err := c.outcome()
	proctest.Must(c.d.t, err)
	return a
}

// unanswered expects no answer yet.
func (c *call) unanswered(wrong string) {
	c.d.t.Helper()
	if len(c.answer) > 0 {
		c.d.t.Fatalf("%s: %s", wrong, c.wait().line)
	}
}

func (c *call) cancel() {
	c.d.t.Helper()
	c.d.must(request{"do": "cancel", "request": c.id})
	if a := c.wait(); a.Error != "cancelled" {
		c.d.t.Errorf("a wait that was cancelled says %s", a.line)
	}
}

func (d *driver) do(r request) answer {
	d.t.Helper()
	return d.send(r).wait()
}

func (d *driver) must(r request) answer {
	d.t.Helper()
	a := d.do(r)
	if a.Error != "" {
		d.t.Fatalf("%s: %v: %s", d.client.name, r, a.line)
	}
	return a
}

type lock struct {
	d      *driver
	name   string
	number int
	uuid   string
	token  int64
	at     time.Time // of the answer
}

// keepsOut expects a wait that is over to name this hold.
func (l *lock) keepsOut(a answer) {
	l.d.t.Helper()
	if a.Error != "timeout" || a.Holder == nil || a.Holder.UUID != l.uuid {
		l.d.t.Errorf("a wait that is over says %s, want timeout and the holder %s", a.line, l.uuid)
	}
}

// comesAfter expects a greater token than that of an earlier hold.
func (l *lock) comesAfter(earlier *lock) {
	l.d.t.Helper()
	if l.token <= earlier.token {
		l.d.t.Errorf("token %d came after %d", l.token, earlier.token)
	}
}

// want describes an acquisition. The zero want waits without limit, with 60 s until alert and 120 s until auto-unlock.
type want struct {
	try           bool
	wait          float64 // seconds; 0 without limit
	alert, unlock float64 // seconds
	purpose       string
	attributes    map[string]any
	heartbeat     bool
	more          request // members of other kinds than a lock with one holder
}

func (w want) request(name string) request {
	r := request{"do": "acquire", "name": name, "wait": nil, "alert_after": 60.0, "auto_unlock_after": 120.0,
		"purpose": w.purpose, "attributes": map[string]any{}, "heartbeat": w.heartbeat}
	if w.try {
		r["wait"] = 0
	} else if w.wait != 0 {
		r["wait"] = w.wait
	}
	if w.alert != 0 {
		r["alert_after"] = w.alert
	}
	if w.unlock != 0 {
		r["auto_unlock_after"] = w.unlock
	}
	if w.attributes != nil {
		r["attributes"] = w.attributes
	}
	maps.Copy(r, w.more)
	return r
}

func (d *driver) acquire(name string, w want) *lock {
	d.t.Helper()
	return d.begin(name, w).granted()
}

func (d *driver) try(name string) answer {
	d.t.Helper()
	return d.do(want{try: true}.request(name))
}

func (d *driver) begin(name string, w want) *call {
	d.t.Helper()
	return d.send(w.request(name))
}

func (c *call) granted() *lock {
	c.d.t.Helper()
	l, err := c.lock(c.wait())
	proctest.Must(c.d.t, err)
	return l
}

func (c *call) lock(a answer) (*lock, error) {
	if a.Error != "" {
		return nil, fmt.Errorf("%s: %v: %s", c.d.client.name, c.asks, a.line)
	}
	l := &lock{d: c.d, name: c.asks["name"].(string), number: a.Lock, uuid: a.UUID, at: a.at}
	if err := json.Unmarshal(a.Token, &l.token); err != nil || l.token <= 0 {
		return nil, fmt.Errorf("%s: the token is no number: %s", c.d.client.name, a.line)
	}
	return l, nil
}

func (l *lock) release() answer {
	l.d.t.Helper()
	return l.d.do(request{"do": "release", "lock": l.number})
}

func (l *lock) mustRelease() {
	l.d.t.Helper()
	l.d.must(request{"do": "release", "lock": l.number})
}

func (l *lock) alive(progress string) answer {
	l.d.t.Helper()
	return l.d.do(request{"do": "alive", "lock": l.number, "progress": progress})
}

func (l *lock) mustAlive(progress string) {
	l.d.t.Helper()
	l.d.must(request{"do": "alive", "lock": l.number, "progress": progress})
}

func (l *lock) check() answer {
	l.d.t.Helper()
	return l.d.must(request{"do": "check", "lock": l.number})
}

func (l *lock) event(kind string) answer {
	l.d.t.Helper()
	return l.eventWithin(kind, *limit)
}

func (l *lock) eventWithin(kind string, limit time.Duration) answer {
	l.d.t.Helper()
	deadline := time.After(limit)
	for {
		e, changed := l.had(kind)
		switch {
		case e != nil:
			return *e
		case changed == nil:
			l.d.t.Fatalf("no event %q for %q: %v", kind, l.name, l.d.why)
		}
		select {
		case <-changed:
		case <-deadline:
			l.d.t.Fatalf("%s sent no event %q for %q within %v", l.d.client.name, kind, l.name, limit)
		}
	}
}

// had returns the first such event so far, if any, and a channel that signals the next event.
func (l *lock) had(kind string) (*answer, <-chan struct{}) {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	for _, e := range l.d.events {
		if e.Event == kind && e.Lock == l.number {
			return &e, l.d.changed
		}
	}
	return nil, l.d.changed
}

// lostNothing expects no reported loss of the lock: it is held, or was released.
func (l *lock) lostNothing() {
	l.d.t.Helper()
	if e, _ := l.had("lost"); e != nil {
		l.d.t.Errorf("it was told of a loss: %s", e.line)
	}
	if a := l.check(); a.Lost != nil {
		l.d.t.Errorf("it says that it is lost: %s", a.line)
	}
}
