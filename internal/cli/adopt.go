package cli

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// ownHold names a hold of the caller's, by the command line or by the variables that run sets for its command.
type ownHold struct {
	names      names
	name, uuid string
}

func (h *ownHold) flags(cmd *cobra.Command) {
	h.names.flag(cmd)
	f := cmd.Flags()
	f.StringVar(&h.uuid, "uuid", os.Getenv(envUUID), "the uuid of the hold (default: $MUTEX_UUID)")
	f.Lookup("uuid").DefValue = "" // the help is the same everywhere
	flags.CommandLineOnly(f, "uuid")
}

// read takes the name of the lock from the arguments, or from the environment where there are none.
func (h *ownHold) read(args []string, hint string) (err error) {
	switch {
	case h.uuid == "":
		return usagef("give the --uuid of your hold%s", hint)
	case len(args) > 0:
		h.name, err = h.names.any(args[0])
		return err
	}
	if h.name = os.Getenv(envName); h.name == "" {
		return usagef("NAME is missing, and MUTEX_NAME is not set")
	}
	return nil
}

// adopt makes a handle of the hold. A share may be named by the shared lock.
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

// holdError maps the end of a hold to an exit status. The error itself says who has the lock now, and how the hold
// ended.
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

// shareWith is the name of the share that is held with this uuid; empty when there is none.
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

// shares reads the records of the shares of a lock.
func (s *session) shares(ctx context.Context, lock string) ([]*metadata.Record, error) {
	asking, cancel := s.request(ctx)
	defer cancel()
	from, end := s.layout.Shares(lock)
	resp, err := s.client.Get(asking, from, clientv3.WithRange(end))
	if err != nil {
		return nil, s.explain(ctx, "read who shares "+text.Visible(lock), err)
	}
	var all []*metadata.Record
	g := gatherer{add: func(r *metadata.Record) { all = append(all, r) }}
	for _, kv := range resp.Kvs {
		g.take(s.layout.Parse(string(kv.Key)), protocol.KV{
			Key: string(kv.Key), Value: kv.Value, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision,
		})
	}
	g.flush()
	byName(all)
	return sharesOf(lock, all), nil
}
