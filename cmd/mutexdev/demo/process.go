package demo

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	releaseTime = 4 * time.Second // that a holder has to release its lock when mutexdev ends
	restartTime = 10 * time.Second
)

// live runs the holder until ctx ends. One that fails is started again after a while.
func (l Language) live(ctx context.Context, o Options) {
	for ctx.Err() == nil {
		says, err := l.run(ctx, o)
		if ctx.Err() != nil {
			return
		}
		o.Log.Error().Err(err).Str("lock", l.Lock).Str("says", says).Msgf("the demo's %s holder ended", l.Name)
		select {
		case <-ctx.Done():
		case <-time.After(restartTime):
		}
	}
}

// run runs the holder once, and returns the end of what it wrote to standard error. The holder releases its lock and
// ends when its input does: so it ends with this process, too, however that ends.
func (l Language) run(ctx context.Context, o Options) (says string, err error) {
	args := append(slices.Clone(l.args[1:]), o.Endpoint, strconv.FormatFloat(o.Speed, 'g', -1, 64))
	cmd := exec.Command(l.args[0], args...) //nolint:gosec,noctx // a program of ours; its input ends with ctx
	cmd.Env = append(environment(), l.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for mutexdev, which tells it
	cmd.WaitDelay = time.Second                           // for what still has its output
	var said tail
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		in.Close()
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
		return strings.TrimSpace(string(said.text)), err
	case <-ctx.Done():
	}
	in.Close()
	late := time.AfterFunc(releaseTime, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer late.Stop()
	return "", <-ended
}

// environment is that of this process without what leads to another etcd.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "ETCDCTL_") || strings.HasPrefix(e, "MUTEXCTL_")
	})
}

// tail keeps the end of what is written to it.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-4096):]
	return len(p), nil
}
