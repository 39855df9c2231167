// Package proctest runs programs for tests and benchmarks: it builds ours once, starts processes on free addresses,
// waits for their output, signals them, and leaves none behind. It also makes certificates, and compares what the
// documentation shows with what is printed.
package proctest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Timeout is how long anything here may take before the test fails: long, because a busy machine with -race is slow.
const Timeout = 2 * time.Minute

// Overlap lets up to eight parallel tests run at a time, instead of one per processor: tests of processes and of an
// etcd mostly wait. The flag -parallel still decides. It is for a TestMain.
func Overlap() {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err) // this is no test
	}
}

// FreeAddr returns a free address, host:port, that no other call returns until the test has ended. Its port is below
// those of outgoing connections, so that it is still free when a program restarts.
func FreeAddr(t testing.TB) string {
	t.Helper()
	addr, reservation, err := reserve()
	Must(t, err)
	t.Cleanup(func() { reservation.Close() })
	return addr
}

// FindAddr is FreeAddr without a test, and without the reservation.
func FindAddr() (string, error) {
	addr, reservation, err := reserve()
	if err != nil {
		return "", err
	}
	return addr, reservation.Close()
}

// reserve finds an address that is free for TCP and holds its UDP port, which is otherwise unused: tests in other
// processes see that the address is taken before a program listens there.
func reserve() (string, net.PacketConn, error) {
	for range 100 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(10_000+rand.IntN(22_000)))
		reservation, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		if l, err := net.Listen("tcp", addr); err == nil {
			return addr, reservation, l.Close()
		}
		reservation.Close()
	}
	return "", nil, errors.New("no free port on 127.0.0.1")
}

// Must ends the test with the error, if there is one.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Eventually calls try until it returns nil.
func Eventually(t testing.TB, what string, try func() error) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(Pause(time.Since(began))) {
		err := try()
		if err == nil {
			return
		}
		if time.Since(began) > Timeout {
			t.Fatalf("%s: not within %v: %v", what, Timeout, err)
		}
	}
}

// Pause is how long to wait before the next try, so long after the first: tries cost, and hurry only at first.
func Pause(waited time.Duration) time.Duration {
	return min(max(waited/20, 5*time.Millisecond), 100*time.Millisecond)
}

// Answers waits until a GET of the URL returns this status and a body with all of these texts, and returns the body.
func Answers(t testing.TB, url string, status int, texts ...string) (body string) {
	t.Helper()
	return AnswersTo(t, &http.Client{}, url, status, texts...)
}

// AnswersTo is Answers with this client.
func AnswersTo(t testing.TB, client *http.Client, url string, status int, texts ...string) (body string) {
	t.Helper()
	Eventually(t, url, func() error {
		got, text, err := Get(client, url)
		if err == nil && got != status {
			err = fmt.Errorf("status %d, want %d: %.300s", got, status, text)
		}
		for _, want := range texts {
			if err == nil && !strings.Contains(text, want) {
				err = fmt.Errorf("there is no %q in %.3000s", want, text)
			}
		}
		body = text
		return err
	})
	return body
}

// Get returns the status and the body of one GET.
func Get(client *http.Client, url string) (status int, body string, err error) {
	c := *client
	c.Timeout = 10 * time.Second
	resp, err := c.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// Metric returns the value of a sample that a program shows, by the beginning of its line.
func Metric(addr, sample string) (float64, error) {
	_, body, err := Get(&http.Client{}, "http://"+addr+"/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(body) {
		if value, found := strings.CutPrefix(line, sample+" "); found {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("there is no %s", sample)
}

// Programs are programs of this repository, built for one run of the tests.
type Programs struct {
	Dir  string // of the programs and other files with the same lifetime
	Root string // of the repository

	read sync.Once
}

// LinkerFlags omits debug information, which halves the time to link.
const LinkerFlags = "-ldflags=-s"

// Build builds programs of the directory cmd by name. TestMain calls it, and Remove at the end.
func Build(names ...string) (*Programs, error) {
	root, err := findRoot()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "unlocker-test")
	if err != nil {
		return nil, err
	}
	p := &Programs{Dir: dir, Root: root}
	if err := p.build(names); err != nil {
		p.Remove()
		return nil, err
	}
	return p, nil
}

// build copies programs that were linked for the tests of another package, unless the sources have changed since.
func (p *Programs) build(names []string) error {
	linked := filepath.Join(p.Root, ".tools", "programs")
	if err := os.MkdirAll(linked, 0o755); err != nil {
		return err
	}
	lock, err := os.Create(filepath.Join(linked, "lock"))
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := exclusive(lock); err != nil {
		return err
	}
	args := []string{"build", LinkerFlags, "-o", linked}
	for _, name := range names {
		args = append(args, "./cmd/"+name)
	}
	if err := p.Go(args...); err != nil {
		return err
	}
	for _, name := range names {
		program, err := os.ReadFile(filepath.Join(linked, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(p.Dir, name), program, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// Main builds programs, runs the tests of a package with them and returns the exit status. It is for a TestMain.
func Main(m *testing.M, programs **Programs, names ...string) int {
	built, err := Build(names...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer built.Remove()
	*programs = built
	return m.Run()
}

// Go runs the go command at the root of the repository.
func (p *Programs) Go(args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir = p.Root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", args[0], err, out)
	}
	return nil
}

// Overlay writes sources, keyed by the absolute paths that they replace, into dir, and returns the file for -overlay.
func Overlay(dir string, sources map[string]string) (file string, err error) {
	replace := map[string]string{}
	for path, source := range sources {
		replace[path] = filepath.Join(dir, fmt.Sprintf("overlay-%d.go", len(replace)))
		err = errors.Join(err, os.WriteFile(replace[path], []byte(source), 0o600))
	}
	list, listErr := json.Marshal(map[string]any{"Replace": replace})
	file = filepath.Join(dir, "overlay.json")
	return file, errors.Join(err, listErr, os.WriteFile(file, list, 0o600))
}

// Remove removes the programs.
func (p *Programs) Remove() { os.RemoveAll(p.Dir) }

// Command returns a [Command] for one of the programs.
func (p *Programs) Command(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	p.read.Do(func() { ReadSources(t) })
	return Command(t, filepath.Join(p.Dir, name), args...)
}

// Command returns a command with a clean environment: PATH, and an empty directory as HOME and for temporary files.
func Command(t testing.TB, path string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(path, args...)
	home := t.TempDir()
	cmd.Env = []string{"HOME=" + home, "TMPDIR=" + home, "PATH=" + os.Getenv("PATH")}
	return cmd
}

// Self returns a command that runs this test binary again, with one more environment variable. TestMain must recognize
// the variable, call EndWithParent, and not run the tests.
func Self(variable, value string) *exec.Cmd {
	path, err := os.Executable()
	cmd := exec.Command(path, "-test.run=^$") // or tests would run if TestMain ignored the variable
	cmd.Err = errors.Join(cmd.Err, err)
	cmd.Env = append(os.Environ(), variable+"="+value)
	return cmd
}

// EndWithParent ends this process, which Launch or Start started, when its parent is gone.
func EndWithParent() {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
}

// ReadSources makes go test run this test again when a program has changed. The test cache knows which files a test
// opened, but not what its child processes read.
func ReadSources(t testing.TB) {
	t.Helper()
	root, err := findRoot()
	for _, dir := range []string{"cmd", "internal", "pkg", "web"} {
		err = errors.Join(err, filepath.WalkDir(filepath.Join(root, dir),
			func(_ string, _ fs.DirEntry, err error) error { return err }))
	}
	Must(t, err)
}

// findRoot finds the root of the repository from the directory of the tested package, which may be in a module below.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for start := dir; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "cmd/unlocker")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not in the repository", start)
		}
	}
}

// Task is a program's function that runs in the test's process.
type Task struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	waited bool
}

// Go runs a function until the test ends. An error that Wait has not returned fails the test.
func Go(t testing.TB, run func(context.Context) error) *Task {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	task := &Task{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(task.done)
		task.err = run(ctx)
	}()
	t.Cleanup(func() {
		if !task.waited {
			task.Stop(t)
		}
	})
	return task
}

// Stop ends the program and fails the test if it returns an error.
func (k *Task) Stop(t testing.TB) {
	t.Helper()
	k.cancel()
	if err := k.Wait(t); err != nil {
		t.Errorf("the program ended with: %v", err)
	}
}

// Done is closed when the program has ended.
func (k *Task) Done() <-chan struct{} { return k.done }

// Wait waits until the program ends and returns its error.
func (k *Task) Wait(t testing.TB) error {
	t.Helper()
	defer k.cancel()
	k.waited = true
	select {
	case <-k.done:
	case <-time.After(Timeout):
		t.Fatalf("the program is still running after %v", Timeout)
	}
	return k.err
}

// Shows reports whether a page shows what was printed. In the page, … stands for anything within a line, and on a
// line of its own for any number of lines. Blanks count as one, because the width of a column depends on what is in it.
func Shows(shown, printed string) bool {
	var pattern strings.Builder
	for line := range strings.Lines(shown) {
		line = strings.Join(strings.Fields(line), " ")
		if line == "…" {
			pattern.WriteString(`(?:.*\n)*`)
			continue
		}
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + `\n`)
	}
	var got strings.Builder
	for line := range strings.Lines(printed) {
		got.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	return regexp.MustCompile(`\A` + pattern.String() + `\z`).MatchString(got.String())
}
