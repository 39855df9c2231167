package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

type unlockOptions struct {
	app   *app
	names names
	uuid  string
}

func newUnlock(a *app) *cobra.Command {
	o := &unlockOptions{app: a}
	cmd := &cobra.Command{
		Use:   "unlock NAME --uuid UUID",
		Short: "Give back a lock that you hold",
		Long: `Give back a lock on behalf of its holder, who knows its uuid: mostly a script that took it with reserve. It is what the holder's own
program does when it is done: nothing is written to history and audit, and no reason is asked for. To end the hold of somebody
else, use force-unlock.

The lock of "mutexctl run" is given back by run; a command that does it earlier is ended, because its lock is gone.

Only the hold with that uuid is ended: 3 when another holds the lock, 4 when nobody does.`,
		Example: `  mutexctl unlock nightly/report --uuid 3f1c6b1e-6f0a-4c3a-9f57-0d3a6f1f2a55

  export MUTEX_UUID=$(mutexctl reserve db/migrate --for 1h --purpose 'by hand')
  ./migrate.sh && mutexctl unlock db/migrate`,
		Args:              wants(1, 1, "NAME"),
		ValidArgsFunction: a.completeNames,
	}
	o.names.flag(cmd)
	uuidFlag(cmd, &o.uuid)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := o.names.any(args[0])
		if err != nil {
			return err
		}
		if o.uuid == "" {
			return usagef("give the --uuid of your hold; to end the hold of somebody else use force-unlock")
		}
		return o.run(cmd.Context(), name)
	}
	return cmd
}

// uuidFlag asks for the uuid of the caller's hold, which run hands to its command.
func uuidFlag(cmd *cobra.Command, uuid *string) {
	cmd.Flags().StringVar(uuid, "uuid", os.Getenv(envUUID), "the uuid of the hold (default: $MUTEX_UUID)")
	cmd.Flags().Lookup("uuid").DefValue = "" // the help is the same everywhere
	flags.CommandLineOnly(cmd.Flags(), "uuid")
}

func (o *unlockOptions) run(ctx context.Context, name string) error {
	s, err := o.app.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	hold, err := s.adopt(ctx, name, o.uuid)
	if err != nil {
		return err
	}
	if err := s.release(ctx, hold); err != nil {
		return err
	}
	_, err = fmt.Fprintf(o.app.Stdout, "unlocked %s\n", visible(name))
	return err
}

// adopt finds the hold with the uuid, of which only the token is not known yet.
func (s *session) adopt(ctx context.Context, name, uuid string) (locktxn.Hold, error) {
	doc, err := s.get(ctx, name)
	if err != nil {
		return locktxn.Hold{}, err
	}
	hold := locktxn.Hold{Lock: name, UUID: uuid, Token: doc.Token}
	return hold, s.stillHeld(&doc, hold)
}

// stillHeld tells whether the record is that of the hold.
func (s *session) stillHeld(doc *metadata.Document, h locktxn.Hold) error {
	switch {
	case doc.Token == 0:
		return noLockf("nobody holds %s", visible(h.Lock))
	case doc.UUID != h.UUID:
		return heldf("%s is not held by %s any more, but by %s", visible(h.Lock), visible(h.UUID), s.holder(&doc.Record))
	case doc.Token != h.Token:
		return heldf("%s was taken again under the same uuid", visible(h.Lock))
	}
	return nil
}

// release gives the hold back. An unanswered request is followed by a look: the hold may be gone by it.
func (s *session) release(ctx context.Context, h locktxn.Hold) error {
	asking, cancel := s.request(ctx)
	defer cancel()
	resp, err := locktxn.Release(s.layout, h).Commit(asking, s.client)
	if err == nil && resp.Succeeded {
		return nil
	}
	doc, lookErr := s.get(ctx, h.Lock)
	switch {
	case err == nil && lookErr == nil:
		return s.stillHeld(&doc, h)
	case err == nil:
		return lookErr
	case lookErr == nil && s.stillHeld(&doc, h) == nil:
		return s.explain(ctx, "unlock "+visible(h.Lock), err)
	case lookErr == nil || status(lookErr) == ExitNoLock:
		return nil // the request did it
	}
	return s.explain(ctx, "unlock "+visible(h.Lock)+" (it may have been done)", err)
}

// holder is one line about who holds a lock.
func (s *session) holder(r *metadata.Record) string {
	now := s.app.Now()
	line := fmt.Sprintf("%s on %s", shortText(r.Owner), hostPID(r))
	if !r.LockedAt.IsZero() {
		line += " for " + age(r.LockedAt, now)
	}
	if r.Purpose != "" {
		line += " (" + shortText(r.Purpose) + ")"
	}
	return line + ", uuid " + shortText(r.UUID)
}
