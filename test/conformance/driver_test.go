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

// client is a client under test.
type client struct {
	name    string
	place   int // among all clients
	command func() *exec.Cmd
	info    answer
}

// claims reports whether the client says that it has all of these levels and features.
func (c *client) claims(needs []string) bool {
	return !slices.ContainsFunc(needs, func(need string) bool {
		switch {
		case isLevel(need):
			return !slices.Contains(c.info.Levels, need)
		case slices.Contains(kinds(), need):
			return !slices.Contains(c.info.Kinds, need)
		}
		return slices.Contains(c.info.Lacks, need)
	})
}

func isLevel(need string) bool {
	return slices.Contains([]string{"basic", "queue", "kinds", "jobs"}, need)
}

// goClient is the Go client, in a process that breaks a rule if it is named.
func goClient(broken string) *client {
	c := &client{name: "go"}
	if broken != "none" {
		c.name = "go without " + broken
	}
	c.command = func() *exec.Cmd { return proctest.Self(driverVariable, broken) }
	return c
}

// scriptClient is the client in a directory, by its conformance/run.
func scriptClient(dir string) *client {
	return &client{name: filepath.Base(dir), command: func() *exec.Cmd {
		cmd := exec.Command(filepath.Join(dir, "conformance", "run"))
		cmd.Dir = dir
		return cmd
	}}
}

// request is a line to a driver.
type request map[string]any

// answer has the members of all answers and events.
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

// UnmarshalJSON also takes a uuid alone, as verdicts have it.
func (h *holder) UnmarshalJSON(text []byte) error {
	if strings.HasPrefix(string(text), `"`) {
		return json.Unmarshal(text, &h.UUID)
	}
	type plain holder
	return json.Unmarshal(text, (*plain)(h))
}

type askedBy struct{ By, Reason string }

// driver is a running driver.
type driver struct {
	t      testing.TB
	client *client
	proc   *proctest.Process
	in     io.WriteCloser

	mu      sync.Mutex
	sent    int
	waiting map[int]chan answer
	events  []answer
	changed chan struct{} // closed when there is another event
	ended   chan struct{} // closed at the end of its output
	broken  error         // of its output
	stderr  lastLines
}

// start runs a driver until the test ends, with these variables in its environment.
func (c *client) start(t testing.TB, env ...string) *driver {
	t.Helper()
	d := &driver{t: t, client: c, waiting: map[int]chan answer{}, changed: make(chan struct{}),
		ended: make(chan struct{})}
	cmd := c.command()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that a kill gets its children, too
	//nolint:usetesting // what it started may still write when it ends
	scratch, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(append(cmd.Environ(), "TMPDIR="+scratch), env...)
	t.Cleanup(func() { os.RemoveAll(scratch) }) // last: a driver that was killed cannot
	cmd.Stderr = &d.stderr
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		t.Fatal(err)
	}
	d.in = in
	if d.proc, err = proctest.Launch(cmd); err != nil {
		t.Fatalf("start the driver of %s: %v", c.name, err)
	}
	go d.read(out)
	t.Cleanup(func() {
		d.kill()
		if text := d.stderr.String(); t.Failed() && text != "" {
			t.Logf("stderr of %s:\n%s", c.name, text)
		}
	})
	return d
}

// read takes answers and events until the driver's output ends.
func (d *driver) read(out io.Reader) {
	defer close(d.ended)
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		a := answer{line: strings.TrimSpace(line), at: time.Now()}
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			d.mu.Lock()
			d.broken = fmt.Errorf("%s printed %q: %w", d.client.name, line, err)
			d.mu.Unlock()
			return
		}
		d.mu.Lock()
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

// kill ends the driver as kill -9 does, with its children.
func (d *driver) kill() {
	syscall.Kill(-d.proc.PID(), syscall.SIGKILL)
	d.proc.Kill()
}

// signalGroup sends a signal to the driver and its children.
func (d *driver) signalGroup(sig syscall.Signal) { syscall.Kill(-d.proc.PID(), sig) }

const (
	stop   = syscall.SIGSTOP
	resume = syscall.SIGCONT
)

// call is a request that was sent.
type call struct {
	d      *driver
	id     int
	asks   request
	answer chan answer
}

// send sends a request.
func (d *driver) send(r request) *call {
	d.t.Helper()
	d.mu.Lock()
	d.sent++
	c := &call{d: d, id: d.sent, asks: r, answer: make(chan answer, 1)}
	d.waiting[c.id] = c.answer
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
	case a := <-c.answer:
		return a, nil
	case <-c.d.ended:
		select {
		case a := <-c.answer:
			return a, nil
		default:
		}
		c.d.mu.Lock()
		defer c.d.mu.Unlock()
		if c.d.broken != nil {
			return answer{}, c.d.broken
		}
		return answer{}, fmt.Errorf("%s ended without an answer to %v", c.d.client.name, c.asks)
	case <-time.After(c.patience()):
		return answer{}, fmt.Errorf("%s did not answer %v within %v", c.d.client.name, c.asks, c.patience())
	}
}

// patience is how long the answer may take. A driver may have to be compiled before it says what it is, and whoever
// waits for a lock without limit waits for all who are ahead.
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

// wait waits for the answer, whatever it says.
func (c *call) wait() answer {
	c.d.t.Helper()
	a, err := c.outcome()
	if err != nil {
		c.d.t.Fatal(err)
	}
	return a
}

// answered reports whether the answer is there.
func (c *call) answered() bool { return len(c.answer) > 0 }

// do sends a request and waits for the answer.
func (d *driver) do(r request) answer {
	d.t.Helper()
	return d.send(r).wait()
}

// must is do of what has to succeed.
func (d *driver) must(r request) answer {
	d.t.Helper()
	c := d.send(r)
	a := c.wait()
	if a.Error != "" {
		d.t.Fatalf("%s: %v: %s", d.client.name, r, a.line)
	}
	return a
}

// lock is a lock that a driver holds.
type lock struct {
	d      *driver
	name   string
	number int
	uuid   string
	token  int64
	at     time.Time // of the answer
}

// want is an acquisition. The zero want waits without limit, with 60 s until the alert and 120 s until auto-unlock.
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
	r := request{"do": "acquire", "name": name, "wait": nil, "alert_after": 60.0, "unlock_after": 120.0,
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
		r["unlock_after"] = w.unlock
	}
	if w.attributes != nil {
		r["attributes"] = w.attributes
	}
	maps.Copy(r, w.more)
	return r
}

// acquire takes the lock, which has to succeed.
func (d *driver) acquire(name string, w want) *lock {
	d.t.Helper()
	return d.begin(name, w).granted()
}

// try tries to take the lock once and returns the answer.
func (d *driver) try(name string) answer {
	d.t.Helper()
	return d.do(want{try: true}.request(name))
}

// begin sends an acquisition.
func (d *driver) begin(name string, w want) *call {
	d.t.Helper()
	return d.send(w.request(name))
}

// granted waits until an acquisition succeeds.
func (c *call) granted() *lock {
	c.d.t.Helper()
	a := c.wait()
	l, err := c.lock(a)
	if err != nil {
		c.d.t.Fatal(err)
	}
	return l
}

// lock reads the answer to an acquisition.
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

// release releases the lock and returns the answer.
func (l *lock) release() answer {
	l.d.t.Helper()
	return l.d.do(request{"do": "release", "lock": l.number})
}

// mustRelease releases the lock, which has to succeed.
func (l *lock) mustRelease() {
	l.d.t.Helper()
	l.d.must(request{"do": "release", "lock": l.number})
}

// alive reports progress and returns the answer.
func (l *lock) alive(progress string) answer {
	l.d.t.Helper()
	return l.d.do(request{"do": "alive", "lock": l.number, "progress": progress})
}

func (l *lock) check() answer {
	l.d.t.Helper()
	return l.d.must(request{"do": "check", "lock": l.number})
}

// event waits for the first event of this kind about the lock.
func (l *lock) event(kind string) answer {
	l.d.t.Helper()
	return l.eventWithin(kind, *limit)
}

func (l *lock) eventWithin(kind string, limit time.Duration) answer {
	l.d.t.Helper()
	deadline := time.After(limit)
	for {
		l.d.mu.Lock()
		changed := l.d.changed
		for _, e := range l.d.events {
			if e.Event == kind && e.Lock == l.number {
				l.d.mu.Unlock()
				return e
			}
		}
		l.d.mu.Unlock()
		select {
		case <-changed:
		case <-l.d.ended:
			l.d.t.Fatalf("%s ended without an event %q for %q", l.d.client.name, kind, l.name)
		case <-deadline:
			l.d.t.Fatalf("%s sent no event %q for %q within %v", l.d.client.name, kind, l.name, limit)
		}
	}
}

// had reports whether there was such an event until now.
func (l *lock) had(kind string) *answer {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	for _, e := range l.d.events {
		if e.Event == kind && e.Lock == l.number {
			return &e
		}
	}
	return nil
}

// lastLines keeps the end of what a driver prints to stderr.
type lastLines struct {
	mu   sync.Mutex
	text []byte
}

func (l *lastLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	l.text = l.text[max(0, len(l.text)-8000):]
	return len(b), nil
}

func (l *lastLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.TrimSpace(string(l.text))
}
