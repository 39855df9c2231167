package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
	"github.com/clustermutex/unlocker/pkg/mutexlog"
)

// session is a connection to etcd, with what commands need to read and write locks.
type session struct {
	client *clientv3.Client
	layout protocol.Layout
	store  *lockstore.Store
	log    zerolog.Logger
	app    *app
}

func (a *app) open(ctx context.Context) (*session, error) {
	s, err := a.connect()
	if err != nil {
		return nil, err
	}
	if err := s.check(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (a *app) withSession(ctx context.Context, run func(context.Context, *session) error) error {
	s, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	return run(ctx, s)
}

// connect makes a session without contacting etcd.
func (a *app) connect() (*session, error) {
	if err := a.etcd.Check(); err != nil {
		return nil, &statusError{ExitUsage, err}
	}
	log := a.log()
	client, err := etcdconn.New(*a.etcd, log)
	if err != nil {
		return nil, err
	}
	return &session{app: a, log: log, client: client, layout: *a.locks,
		store: lockstore.New(client, *a.locks, lockstore.WithLog(log))}, nil
}

// check reads once, so that a problem with the connection is reported at once, and as such.
func (s *session) check(ctx context.Context) error {
	request, cancel := s.request(ctx)
	defer cancel()
	err := etcdconn.CheckAccess(request, s.client, s.layout.Prefix())
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// waitForEtcd is check, but with --wait it also waits for an unreachable etcd until ctx ends, and reports that once.
func (s *session) waitForEtcd(ctx context.Context, wait waitTimeout) error {
	var outage error
	for {
		err := s.check(ctx)
		switch {
		case err == nil || !wait.outlastsOutage():
			return err
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return fmt.Errorf("gave up waiting: %w", cmp.Or(outage, errors.New("etcd did not answer in time")))
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !isOutage(err):
			return err
		case outage == nil:
			s.app.noteUnlessQuiet("waiting: %v", err)
		}
		outage = err
		sleep(ctx, time.Second)
		s.client.ActiveConnection().ResetConnectBackoff() // or gRPC would soon retry only every two minutes
	}
}

// outage returns an error if etcd does not answer at the end of a wait: what is known of the holder is old then.
func (s *session) outage(ctx context.Context) error {
	if err := s.check(context.WithoutCancel(ctx)); isOutage(err) {
		return fmt.Errorf("gave up waiting: %w", err)
	}
	return nil
}

// isOutage reports whether the same request may succeed later.
func isOutage(err error) bool {
	return slices.Contains([]etcdconn.Class{etcdconn.Unreachable, etcdconn.Timeout, etcdconn.NoLeader,
		etcdconn.Overloaded}, etcdconn.Classify(err))
}

func (s *session) close() { _ = s.client.Close() } // there is nothing left to send

// request returns a context with the timeout of one request to etcd.
func (s *session) request(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.app.etcd.RequestTimeout)
}

// explain explains an error of etcd. If ctx has ended, because of a signal, its cause is the error instead.
func (s *session) explain(ctx context.Context, doing string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &etcdError{doing, err}
}

type etcdError struct {
	doing string
	err   error
}

func (e *etcdError) Error() string { return e.doing + ": " + etcdconn.Explain(e.err) }
func (e *etcdError) Unwrap() error { return e.err }

// locks returns the library's client on this connection, with options for all its locks, which it checks. The holder is
// process, or this process if that is nil. The client logs only at levels below warn: the command reports the rest
// itself.
func (s *session) locks(process *metadata.Process, options ...mutex.Option) (*mutex.Client, error) {
	var logger *slog.Logger
	if s.log.GetLevel() < zerolog.WarnLevel {
		logger = mutexlog.FromZerolog(s.log)
	}
	locks, err := mutex.New(s.client, mutex.Options{
		Prefix: s.layout.Prefix(), Logger: logger, Now: s.app.Now, Defaults: options, Process: process,
		RequestTimeout: s.app.etcd.RequestTimeout,
	})
	if err != nil {
		return nil, usageErrorf("%s", strings.TrimPrefix(err.Error(), "mutex: options: "))
	}
	return locks, nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
