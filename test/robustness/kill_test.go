package robustness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// A witness may state the end of a process before whoever killed it has noticed: that is no lie. This one is noticed
// late, because what it started has its output.
func TestAProcessIsKilledBeforeAnybodySeesItsEnd(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 1 & exec sleep 600")
	p := &child{Process: proctest.Start(t, cmd)}
	pid := cmd.Process.Pid
	proctest.Eventually(t, "its start", func() error {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err == nil && strings.TrimSpace(string(name)) != "sleep" {
			err = fmt.Errorf("it is %s", name)
		}
		return err
	})
	seen := make(chan int64)
	go func() {
		for !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		}
		seen <- stamp()
	}()
	p.kill()
	if at := <-seen; p.killed == 0 || p.killed > at {
		t.Errorf("killed at %d, and its end was seen at %d", p.killed, at)
	}
}
