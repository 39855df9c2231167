package childproc

import (
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// As the first process of a container, mutexctl inherits what its command leaves behind.
func TestZombiesOfACommandAreNotWaitedFor(t *testing.T) {
	proctest.Must(t, unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	cmd := exec.Command("sh", "-c", "sleep 600 & sleep 600 & echo ready; wait")
	out, err := cmd.StdoutPipe()
	proctest.Must(t, err)
	c, err := Start(cmd, nil, nil)
	proctest.Must(t, err)
	if _, err := out.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	c.End(unix.SIGTERM, proctest.Timeout)
	if took := time.Since(began); took > proctest.Timeout/2 {
		t.Errorf("a command that dies at once took %v to end", took)
	}
}
