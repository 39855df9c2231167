package cli

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// ownHold is a hold of the caller, named on the command line or by the variables that run sets for its command.
type ownHold struct {
	names      names
	name, uuid string
}

func (h *ownHold) flags(cmd *cobra.Command) {
	h.names.flag(cmd)
	f := cmd.Flags()
	f.StringVar(&h.uuid, "uuid", os.Getenv(envUUID), "the uuid of the hold (default: $MUTEX_UUID)")
	f.Lookup("uuid").DefValue = "" // the help does not depend on the environment
	flags.CommandLineOnly(f, "uuid")
}

// read takes the lock's name from the arguments or, without any, from the environment.
func (h *ownHold) read(args []string, hint string) (err error) {
	switch {
	case h.uuid == "":
		return usagef("give the --uuid of your hold%s", hint)
	case len(args) > 0:
		h.name, err = h.names.parse(args[0])
		return err
	}
	if h.name = os.Getenv(envName); h.name == "" {
		return usagef("NAME is missing, and MUTEX_NAME is not set")
	}
	return nil
}

// adopt returns a handle of the hold. The name of a share may be that of the whole lock.
func (s *session) adopt(ctx context.Context, locks *mutex.Client, h *ownHold,
	options ...mutex.Option) (*mutex.Lock, error) {
	options = append(options, mutex.ForHolder())
	lock, err := locks.Adopt(ctx, h.name, h.uuid, options...)
	lost, isLost := errors.AsType[*mutex.LostError](err)
	if !isLost {
		return lock, s.holdError(ctx, "find the hold of "+text.Visible(h.name), err)
	}
	share, err := s.shareWith(ctx, h.name, h.uuid)
	if err != nil {
		return nil, err
	}
	if share == "" {
		return nil, s.holdError(ctx, "", lost)
	}
	lock, err = locks.Adopt(ctx, share, h.uuid, options...)
	return lock, s.holdError(ctx, "find the hold of "+text.Visible(share), err)
}

// holdError gives an error about a lost hold its exit status. The error itself says who holds the lock now, and how the
// hold ended.
func (s *session) holdError(ctx context.Context, doing string, err error) error {
	lost, isLost := errors.AsType[*mutex.LostError](err)
	switch {
	case err == nil:
		return nil
	case isLost && lost.Holder == nil && lost.Certain:
		return noLockf("%w", lost)
	case isLost:
		return heldf("%w", lost)
	}
	return s.explain(ctx, doing, err)
}

// shareWith returns the name of the share that is held with this uuid, or "".
func (s *session) shareWith(ctx context.Context, name, uuid string) (string, error) {
	shares, err := s.shares(ctx, name)
	if err != nil {
		return "", err
	}
	for _, r := range shares {
		if r.UUID == uuid {
			return r.Name, nil
		}
	}
	return "", nil
}
