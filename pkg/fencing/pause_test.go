//go:build unix

package fencing_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/etcdtest"
)

// A process that is stopped between its last look at the lock and its write, for real.
func TestLateWriteOfAStoppedProcess(t *testing.T) {
	server, s := etcdtest.Start(t), serve(t)
	etcd := server.Client(t)
	h := startHolder(t, server.Endpoint(), s.url)
	var token int64
	if _, err := fmt.Sscanf(h.line(t), "held %d", &token); err != nil {
		t.Fatal(err)
	}
	h.stop(t)
	h.tell(t, "write\n") // it would, if it could
	forceUnlock(t, etcd, "page")
	next := take(t, etcd, "next", "page")
	for _, name := range []string{"open", "fenced"} {
		if err := putPage(s.url+"/"+name, next.Token(), "next"); err != nil {
			t.Fatal(err)
		}
	}
	if next.Token() <= token || s.open.read() != "next" || s.fenced.read() != "next" {
		t.Fatalf("tokens %d, %d; pages %q, %q", token, next.Token(), s.open.read(), s.fenced.read())
	}
	h.signal(t, syscall.SIGCONT)
	for _, want := range []string{"open 200", "fenced 412", `lock "page" was lost: force-unlocked by ann`} {
		if got := h.line(t); !strings.HasPrefix(got, want) {
			t.Errorf("the holder says %q, want %q", got, want)
		}
	}
	if s.open.read() != "late" || s.fenced.read() != "next" {
		t.Errorf("without a fence %q was written last, behind one %q", s.open.read(), s.fenced.read())
	}
	if err := next.Unlock(); err != nil {
		t.Error(err)
	}
}

// holder is this test binary once more, as the holder of a lock.
type holder struct {
	cmd    *exec.Cmd
	in     io.Writer
	out    *bufio.Scanner
	errors bytes.Buffer
}

func startHolder(t *testing.T, endpoint, url string) *holder {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // whatever happens, it does not stay
	h := &holder{cmd: exec.CommandContext(ctx, self)}
	h.cmd.Env = append(os.Environ(), holderVariable+"="+endpoint+" "+url)
	h.cmd.Stderr = &h.errors
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.out = bufio.NewScanner(out)
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel() // kills a stopped process, too
		_ = h.cmd.Wait()
		if t.Failed() {
			t.Logf("the holder's errors: %s", &h.errors)
		}
	})
	return h
}

func (h *holder) line(t *testing.T) string {
	t.Helper()
	if !h.out.Scan() {
		t.Fatalf("the holder says nothing more: %v", h.out.Err())
	}
	return h.out.Text()
}

func (h *holder) tell(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(h.in, line); err != nil {
		t.Fatal(err)
	}
}

func (h *holder) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := h.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// stop returns when the process stands still.
func (h *holder) stop(t *testing.T) {
	t.Helper()
	h.signal(t, syscall.SIGSTOP)
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(h.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || !status.Stopped() {
			t.Fatalf("the holder did not stop: %v, %v", status, err)
		}
		return
	}
}
