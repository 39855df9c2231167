package cli

import (
	"context"
	"strings"
	"syscall"

	"github.com/clustermutex/unlocker/internal/cli/childproc"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// onAsk is what run does when somebody asks it to finish: a signal for its command, or a command of its own. The zero
// onAsk only says so.
type onAsk struct {
	value   string
	signal  syscall.Signal // 0: none
	command string         // for the shell
}

func (o *onAsk) String() string { return o.value }
func (o *onAsk) Type() string   { return "signal or command" }

// Set reads the name of a signal that run forwards, or a shell command.
func (o *onAsk) Set(value string) error {
	*o = onAsk{value: value}
	name := "SIG" + strings.TrimPrefix(value, "SIG")
	signal, err := childproc.ParseSignal(name)
	if err != nil {
		return &statusError{ExitUsage, err}
	}
	if o.signal = signal; signal != 0 {
		return nil
	}
	if strings.TrimSpace(value) == "" {
		return usagef("want the name of a signal, or a command")
	}
	o.command = value
	return nil
}

// asked says on stderr who asks the command to finish, and does what --on-ask wants. ctx ends with the command.
func (j *job) asked(ctx context.Context, lock *mutex.Lock, c *childproc.Child) {
	j.app.note("%v", lock.AskedError())
	switch {
	case childproc.Ends(j.onAsk.signal):
		j.app.note("ending the command with %s, at the latest in %v", childproc.SignalName(j.onAsk.signal), j.grace)
		c.EndWith(j.onAsk.signal, j.grace)
	case j.onAsk.signal != 0:
		c.Signal(j.onAsk.signal)
	case j.onAsk.command != "":
		go j.runOnAsk(ctx, lock, lock.Request())
	}
}

// runOnAsk runs the command of --on-ask, which ends with ctx.
func (j *job) runOnAsk(ctx context.Context, lock *mutex.Lock, r *metadata.Request) {
	cmd := childproc.Shell(ctx, j.onAsk.command)
	cmd.Env = append(lockEnvironment(lock), envAskedBy+"="+environment(r.By), envAskedReason+"="+environment(r.Reason))
	j.group.Contain(cmd)
	cmd.Stdout = j.app.Stdout
	cmd.Stderr = j.app.Stderr
	if err := cmd.Run(); err != nil && ctx.Err() == nil {
		j.app.note("the command of --on-ask failed: %v", err)
	}
}

// environment makes text from outside fit for an environment variable.
func environment(s string) string { return text.Visible(s) }
