package cli

import (
	"context"
	"errors"
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
	d.names.flag(cmd)
	f := cmd.Flags()
	f.StringVar(&d.uuid, "uuid", "", "the uuid of the hold that you saw")
	f.StringVar(&d.reason, "reason", "", reason)
	f.StringVar(&d.ticket, "ticket", "", "the ticket for this")
	flags.CommandLineOnly(f, "uuid", "reason", "ticket") // for this one hold only
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

// outcome is the error of what was done to the lock, for people.
func (d *deed) outcome(ctx context.Context, s *session, lock, doing string, err error) error {
	var changed *lockstore.ChangedError
	var refused *lockstore.RefusedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return errors.New("nothing was done: " + refused.Error())
	case errors.Is(err, lockstore.ErrNoSpace):
		return lockstore.ErrNoSpace
	case errors.As(err, &changed) && changed.Now.Token != 0:
		return heldf("nothing was done: %s is held by %s now", text.Visible(lock), s.holder(&changed.Now.Record))
	case errors.As(err, &changed):
		return noLockf("nothing was done: nobody holds %s any more", text.Visible(lock))
	}
	return s.explain(ctx, doing, err)
}
