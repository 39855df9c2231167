package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// operatorAction has the flags of an operator's action on a hold: which hold, and why.
type operatorAction struct {
	names          names
	uuid           string
	reason, ticket string
}

// noUUID is the --uuid of a record that has none.
const noUUID = "none"

// flags defines the flags of the verb; usage describes the flag for the reason or note.
func (o *operatorAction) flags(cmd *cobra.Command, v protocol.Verb, usage string) {
	o.names.flag(cmd)
	f := cmd.Flags()
	why := v.Info().ReasonField
	f.StringVar(&o.uuid, "uuid", "", "the uuid of the hold that you saw: no other is touched")
	f.StringVar(&o.reason, why, "", usage)
	f.StringVar(&o.ticket, "ticket", "", "reference to a ticket, such as OPS-12")
}

// applyToHold reads the lock, performs an action on its hold, and prints the line that reports it.
func (o *operatorAction) applyToHold(ctx context.Context, s *session, name string,
	act func(context.Context, *session, *metadata.FullRecord) (done string, err error)) error {
	doc, err := o.read(ctx, s, name)
	if err != nil {
		return err
	}
	done, err := act(ctx, s, &doc)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(s.app.Stdout, done)
	return err
}

func (o *operatorAction) check(v protocol.Verb) error {
	o.reason = strings.TrimSpace(o.reason)
	why := v.Info().ReasonField
	check := protocol.CheckReason
	if v.Info().MinReasonLength == 0 {
		check = protocol.CheckNote
	} else if o.reason == "" {
		return usageErrorf("give a --%s: it is kept in history and audit", why)
	}
	if err := check(o.reason); err != nil {
		return usageErrorf("--%s: %w", why, err)
	}
	return nil
}

// read reads the lock. It returns an error if --uuid names another hold than the current one.
func (o *operatorAction) read(ctx context.Context, s *session, name string) (metadata.FullRecord, error) {
	l, err := s.read(ctx, name)
	doc := l.Record
	switch {
	case err != nil:
		return doc, err
	case len(doc.Fields) == 0 && len(l.Shares) == 0:
		return doc, noLockErrorf("nobody holds %s", text.Visible(name))
	case len(doc.Fields) == 0:
		return doc, noLockErrorf("nothing was done: %s is shared; name one of its holders: %s", text.Visible(name),
			namesOf(l.Holders(), func(r *metadata.Record) string { return r.Name }))
	case o.uuid != "" && o.uuid != doc.UUID && !(o.uuid == noUUID && doc.Token == 0):
		return doc, heldErrorf("nothing was done: %s is not held by %s, but by %s", text.Visible(name),
			text.Visible(o.uuid), s.describeHolder(&doc.Record))
	}
	return doc, nil
}

// perform performs the action, and explains its error; doing is a verb phrase before the lock's name.
func (o *operatorAction) perform(ctx context.Context, s *session, v protocol.Verb, on protocol.ActionTarget,
	a protocol.Action, doing string) (protocol.Outcome, error) {
	request, cancel := s.request(ctx)
	defer cancel()
	out, err := s.store.Perform(request, v, on, a)
	return out, o.actionError(ctx, s, on.Hold, doing+" "+text.Visible(a.Lock), err)
}

func (o *operatorAction) action(s *session, r *metadata.Record) protocol.Action {
	return o.entry(s, protocol.Action{Lock: r.Name, UUID: r.UUID, Token: r.Token, Revision: r.Revision,
		Holder: s.describeHolder(r)})
}

// entry adds to an audit entry who acts, when and why.
func (o *operatorAction) entry(s *session, a protocol.Action) protocol.Action {
	a.ID = uuid.NewString()
	a.At.Time = s.app.Now()
	a.Actor = operatorName()
	a.Source = "cli"
	a.Client = "mutexctl " + daemon.CurrentBuild().Version
	a.Reason = o.reason
	a.Ticket = o.ticket
	a.Result = "success"
	return a
}

// actionError turns the error of an action on the hold in r into one for the user.
func (o *operatorAction) actionError(ctx context.Context, s *session, r *metadata.Record, doing string,
	err error) error {
	changed, isChanged := errors.AsType[*lockstore.ChangedError](err)
	refused, isRefused := errors.AsType[*protocol.RefusedError](err)
	switch {
	case err == nil:
		return nil
	case isRefused:
		return errors.New("nothing was done: " + refused.Error())
	case errors.Is(err, lockstore.ErrNoSpace):
		return lockstore.ErrNoSpace
	case isChanged && changed.Current.Token == 0:
		return noLockErrorf("nothing was done: %s is no longer held", text.Visible(r.Name))
	case isChanged && changed.Current.Token != r.Token:
		return heldErrorf("nothing was done: %s is held by %s now", text.Visible(r.Name),
			s.describeHolder(&changed.Current.Record))
	case errors.Is(err, metadata.ErrChanged): // the same hold has changed, or the current one could not be read
		return heldErrorf("nothing was done: %s has changed meanwhile: look again", text.Visible(r.Name))
	}
	return s.explain(ctx, doing, err)
}

// markCommand is a command that adds something to the record of a hold: a request, more time, an acknowledgement.
type markCommand struct {
	operatorAction
	verb       protocol.Verb
	doing      string // a verb phrase before the lock's name
	done       func(s *session, r *metadata.Record, a protocol.Action) string
	lengthFlag string        // of a verb with a duration
	length     time.Duration // its value
	withdraw   bool          // instead: end the acknowledgement
	given      func(flag string) bool
}

// markCommand makes cmd run m; why is the usage of the flag for the reason or note.
func (a *app) markCommand(cmd *cobra.Command, m *markCommand, why string) *cobra.Command {
	m.flags(cmd, m.verb, why)
	m.given = cmd.Flags().Changed
	cmd.ValidArgsFunction = a.completeNames
	m.names.onLock(cmd, a, m.check, func(ctx context.Context, s *session, name string) error {
		return m.applyToHold(ctx, s, name, m.run)
	})
	return cmd
}

func (m *markCommand) check() error {
	facts := m.verb.Info()
	if m.withdraw && (m.given(m.lengthFlag) || m.given(facts.ReasonField)) {
		return usageErrorf("--withdraw takes neither --%s nor --%s", m.lengthFlag, facts.ReasonField)
	}
	if facts.CheckDuration != nil {
		if err := facts.CheckDuration(m.length); err != nil {
			return usageErrorf("--%s is %v: %w", m.lengthFlag, m.length, err)
		}
		if m.length%time.Second != 0 {
			return usageErrorf("--%s must be in whole seconds", m.lengthFlag)
		}
	}
	return m.operatorAction.check(m.verb)
}

func (m *markCommand) run(ctx context.Context, s *session, doc *metadata.FullRecord) (string, error) {
	r := &doc.Record
	action := m.action(s, r)
	verb, doing := m.verb, m.doing
	if m.withdraw {
		verb, doing = protocol.VerbWithdraw, "withdraw the acknowledgement of"
	} else {
		action.Seconds = int64(m.length / time.Second)
	}
	if _, err := m.perform(ctx, s, verb, protocol.ActionTarget{Hold: r}, action, doing); err != nil {
		return "", err
	}
	return m.done(s, r, action), nil
}

// confirm asks a question on the terminal until ctx ends. It returns an error unless the answer is one of these; not is
// how the error describes another one.
func (a *app) confirm(ctx context.Context, question, not string, answers ...string) error {
	fmt.Fprint(a.Stderr, question)
	type line struct {
		text string
		err  error
	}
	lines := make(chan line, 1)
	go func() { // may last as long as the process: a read from a terminal cannot be cancelled
		typed, err := bufio.NewReader(a.Stdin).ReadString('\n')
		lines <- line{strings.TrimRight(typed, "\r\n"), err}
	}()
	select {
	case typed := <-lines:
		switch {
		case typed.err != nil:
			return errors.New("nothing was done: nothing was typed")
		case !slices.Contains(answers, typed.text):
			return errors.New("nothing was done" + not)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// operatorName returns the user of this process, as user@host.
func operatorName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return userName() + "@" + host
}

func userName() string {
	u, err := user.Current()
	if err != nil {
		return "unknown"
	}
	return u.Username
}

func newAsk(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ask NAME --reason REASON",
		Short: "Ask the holder of a lock to finish, as an operator",
		Long: `Ask the holder of a lock to finish early. Nothing is taken away: the holder sees the request if its
library watches the lock, and finishes if it can. "mutexctl run" passes it on with --on-ask. A later
request replaces an earlier one. "mutexctl show" says whether the holder has answered.`,
		Example: `  mutexctl ask nightly/report --reason 'the deploy waits'
  mutexctl ask nightly/report --uuid 3f1c6b1e-6f0a-4c3a-9f57-0d3a6f1f2a55 --reason 'the deploy waits' --ticket OPS-12`,
	}
	m := &markCommand{verb: protocol.VerbAsk, doing: "ask the holder of"}
	m.done = func(s *session, r *metadata.Record, _ protocol.Action) string {
		return fmt.Sprintf("asked the holder of %s to finish: %s", text.Visible(r.Name), s.describeHolder(r))
	}
	return a.markCommand(cmd, m, "why, for the holder and the audit trail (required)")
}

func newExtend(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "extend NAME --by DURATION --reason REASON",
		Short: "Give the holder of a lock more time, as an operator",
		Long: `Move a lock's alert and auto-unlock forward, for a holder that is healthy but slow: by --by from now
or, if they lie in the future, from where they are. A lock that alerts stops alerting. Nothing that the
holder does later moves these deadlines back.

Refused for a holder that is proven to have ended, and for a record without readable deadlines. To
extend a lock of your own, use alive.`,
		Example: `  mutexctl extend nightly/report --by 30m --reason 'the backup is slow, but it runs'
  mutexctl extend nightly/report --by 2h --uuid 3f1c6b1e-6f0a-4c3a-9f57-0d3a6f1f2a55 --reason 'waits for OPS-12'`,
	}
	m := &markCommand{verb: protocol.VerbExtend, doing: "extend", done: extendedText, lengthFlag: "by"}
	cmd.Flags().DurationVar(&m.length, "by", 0, "how much time to give, up to 168h (required)")
	return a.markCommand(cmd, m, "why, for the record and the audit trail (required)")
}

func extendedText(s *session, r *metadata.Record, a protocol.Action) string {
	now := s.app.Now()
	alertAt, autoUnlockAt := protocol.NewDeadlines(r, a.Duration(), a.At.Time)
	return fmt.Sprintf("gave %s more to %s: alert %s, auto-unlock %s; held by %s", text.Duration(a.Duration()),
		text.Visible(r.Name), relative(alertAt, now), relative(autoUnlockAt, now), s.describeHolder(r))
}

func newAck(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ack NAME [--for DURATION] [--note NOTE]",
		Aliases: []string{"acknowledge"},
		Short:   "Tell everyone that you are looking at a lock",
		Long: `Tell everyone that you are looking at a lock, and until when: dashboards, "mutexctl list", "mutexctl
show" and the alerts about the lock show your name. It ends after --for, or with the hold: the next
hold of the lock is not acknowledged.

It silences no alert and changes nothing for the holder. A later acknowledgement replaces an earlier
one, whoever made it. --withdraw ends it early, whoever made it.`,
		Example: `  mutexctl ack nightly/report --for 30m --note 'looking at the disk of node-7'
  mutexctl ack nightly/report --withdraw`,
	}
	m := &markCommand{verb: protocol.VerbAcknowledge, doing: "acknowledge", lengthFlag: "for"}
	cmd.Flags().DurationVar(&m.length, "for", 30*time.Minute, "how long it lasts, 1m to 24h")
	cmd.Flags().BoolVar(&m.withdraw, "withdraw", false, "end the current acknowledgement")
	m.done = func(s *session, r *metadata.Record, a protocol.Action) string {
		earlier := r.ValidAcknowledgement(a.At.Time)
		line := fmt.Sprintf("acknowledged %s for %s", text.Visible(r.Name), text.Duration(a.Duration()))
		switch {
		case m.withdraw:
			line = fmt.Sprintf("withdrew the acknowledgement of %s by %s", text.Visible(r.Name),
				protocol.DisplayName(r.Acknowledgement.By))
		case earlier != nil:
			line += ", in place of " + protocol.DisplayName(earlier.By)
		}
		return line + "; held by " + s.describeHolder(r)
	}
	return a.markCommand(cmd, m, "what you are doing about it, for everyone")
}
