package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/build"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// deed is what an operator does to a hold of another: which hold, and why.
type deed struct {
	names          names
	uuid           string
	reason, ticket string
}

// noUUID is the --uuid of a record that has none.
const noUUID = "none"

func (d *deed) flags(cmd *cobra.Command, reason string) {
	d.flagsWith(cmd, "reason", reason)
}

// flagsWith is flags for a command in which the reason has another name.
func (d *deed) flagsWith(cmd *cobra.Command, reason, usage string) {
	d.names.flag(cmd)
	f := cmd.Flags()
	f.StringVar(&d.uuid, "uuid", "", "the uuid of the hold that you saw")
	f.StringVar(&d.reason, reason, "", usage)
	f.StringVar(&d.ticket, "ticket", "", "the ticket for this")
	flags.CommandLineOnly(f, "uuid", reason, "ticket") // for this one hold only
}

// runs makes cmd do something to the hold of the lock that it names: check looks at the flags, and act does it to the
// hold as it was read, and says in a line what was done.
func (d *deed) runs(cmd *cobra.Command, a *app, check func() error,
	act func(ctx context.Context, s *session, doc *metadata.Document) (done string, err error)) {
	cmd.Args = wants(1, 1, "NAME")
	cmd.ValidArgsFunction = a.completeNames
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := d.names.parse(args[0])
		if err != nil {
			return err
		}
		if err := check(); err != nil {
			return err
		}
		s, err := a.open(cmd.Context())
		if err != nil {
			return err
		}
		defer s.close()
		doc, err := d.read(cmd.Context(), s, name)
		if err != nil {
			return err
		}
		done, err := act(cmd.Context(), s, &doc)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(a.Stdout, done)
		return err
	}
}

// send does something to the hold in r, and explains what came of it; doing is a verb phrase before the lock's name.
func (d *deed) send(ctx context.Context, s *session, r *metadata.Record, doing string,
	act func(context.Context) error) error {
	request, cancel := s.request(ctx)
	defer cancel()
	return d.outcome(ctx, s, r, doing+" "+text.Visible(r.Name), act(request))
}

func (d *deed) check() error {
	d.reason = strings.TrimSpace(d.reason)
	if d.reason == "" {
		return usagef("give a --reason: it is kept in history and audit")
	}
	if protocol.CheckReason(d.reason) != nil {
		return usagef("--reason must be one line of at most %d bytes", metadata.MaxTextBytes)
	}
	return nil
}

// read reads the lock, and refuses a hold that is not the one that was named.
func (d *deed) read(ctx context.Context, s *session, name string) (metadata.Document, error) {
	doc, err := s.get(ctx, name)
	if err != nil {
		return doc, s.orShares(ctx, name, err)
	}
	if err := s.heed(ctx, &doc.Record); err != nil {
		return doc, err
	}
	if d.uuid != "" && d.uuid != doc.UUID && !(d.uuid == noUUID && doc.Token == 0) {
		return doc, heldf("nothing was done: %s is not held by %s, but by %s", text.Visible(name),
			text.Visible(d.uuid), s.holder(&doc.Record))
	}
	return doc, nil
}

// action is the audit entry of what is done to the hold in r.
func (d *deed) action(s *session, what string, r *metadata.Record) protocol.Action {
	return protocol.Action{
		ID: uuid.NewString(), At: metadata.Time{Time: s.app.Now()}, Actor: operator(), Source: "cli",
		Client: "mutexctl " + build.Current().Version,
		Action: what, Lock: r.Name, UUID: r.UUID, Token: r.Token, Revision: r.Revision,
		Holder: s.holder(r), Reason: d.reason, Ticket: d.ticket, Result: "success",
	}
}

// outcome is the error of what was done to the hold in r, for people.
func (d *deed) outcome(ctx context.Context, s *session, r *metadata.Record, doing string, err error) error {
	var changed *lockstore.ChangedError
	var refused *lockstore.RefusedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return errors.New("nothing was done: " + refused.Error())
	case errors.Is(err, lockstore.ErrNoSpace):
		return lockstore.ErrNoSpace
	case errors.As(err, &changed) && changed.Now.Token != 0 && changed.Now.Token == r.Token:
		return heldf("nothing was done: %s has changed meanwhile: look again", text.Visible(r.Name))
	case errors.As(err, &changed) && changed.Now.Token != 0:
		return heldf("nothing was done: %s is held by %s now", text.Visible(r.Name), s.holder(&changed.Now.Record))
	case errors.As(err, &changed):
		return noLockf("nothing was done: nobody holds %s any more", text.Visible(r.Name))
	}
	return s.explain(ctx, doing, err)
}
