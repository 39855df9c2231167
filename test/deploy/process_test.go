package deploy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take before a test fails. Nothing here asserts a tight time.
const patience = 60 * time.Second

// process is one of our programs.
type process struct {
	cmd  *exec.Cmd
	out  *output
	done chan struct{}
}

// start runs a program until the test ends, with these variables and no others.
func start(t *testing.T, environment []string, program string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(filepath.Join(bin, program), args...), out: &output{}, done: make(chan struct{})}
	p.cmd.Env = environment
	p.cmd.Dir = "/"
	p.cmd.Stdout = p.out
	p.cmd.Stderr = p.out
	p.watch(t)
	return p
}

// watch starts the command and ends it with the test.
func (p *process) watch(t *testing.T) {
	t.Helper()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("%s\n%s", strings.Join(p.cmd.Args, " "), p.out)
		}
	})
}

// end asks the program to end and wants it to end well.
func (p *process) end(t *testing.T) {
	t.Helper()
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatalf("it still runs after %v", patience)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it ends with status %d", code)
	}
}

type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// freeAddr is an address on which nobody listens.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// answers waits until the URL answers with the status. Where the program ends instead, there is nothing to wait for.
func answers(t *testing.T, p *process, client *http.Client, url string, status int) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := ask(client, url, status)
		if err == nil {
			return
		}
		select {
		case <-p.done:
			t.Fatalf("the program ended: %s", p.out)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func ask(client *http.Client, url string, status int) error {
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != status {
		return fmt.Errorf("%s: %s, want %d", url, resp.Status, status)
	}
	return nil
}

// contains wants a text in what a URL answers.
func contains(url, text string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && !strings.Contains(string(body), text) {
		err = fmt.Errorf("%s does not say %q", url, text)
	}
	return err
}
