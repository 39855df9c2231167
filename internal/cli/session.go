package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
	"github.com/clustermutex/unlocker/pkg/mutexlog"
)

// session is a connection to etcd, with what commands ask over it.
type session struct {
	client *clientv3.Client
	layout protocol.Layout
	store  *lockstore.Store
	log    zerolog.Logger
	app    *app
}

// open connects, and checks the connection.
func (a *app) open(ctx context.Context) (*session, error) {
	s, err := a.connect()
	if err != nil {
		return nil, err
	}
	if err := s.prove(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// connect makes a session without contacting etcd.
func (a *app) connect() (*session, error) {
	layout, err := a.locks.Layout()
	if err != nil {
		return nil, &statusError{ExitUsage, err}
	}
	if err := a.etcd.Check(); err != nil {
		return nil, &statusError{ExitUsage, err}
	}
	log := a.log()
	client, err := etcdconn.New(*a.etcd, log)
	if err != nil {
		return nil, err
	}
	return &session{app: a, log: log, client: client, layout: layout,
		store: lockstore.New(client, layout, lockstore.WithLog(log))}, nil
}

// prove makes a first read, so that a problem of the connection is reported as such, at once.
func (s *session) prove(ctx context.Context) error {
	asking, cancel := s.request(ctx)
	defer cancel()
	err := etcdconn.Prove(asking, s.client, s.layout.Prefix())
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// reach is prove. With --wait it waits for an unreachable etcd, too, until ctx ends, and reports that once.
func (s *session) reach(ctx context.Context, wait waitTimeout) error {
	var away error
	for {
		err := s.prove(ctx)
		switch {
		case err == nil || !wait.outlastsOutage():
			return err
		case away != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
			return fmt.Errorf("gave up waiting: %w", away)
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return errors.New("gave up waiting: etcd did not answer in time")
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !isAway(err):
			return err
		case away == nil:
			s.app.mention("waiting: %v", err)
		}
		away = err
		sleep(ctx, time.Second)
		s.client.ActiveConnection().ResetConnectBackoff() // else gRPC would soon try it once in two minutes
	}
}

// isAway reports whether etcd may answer if it is asked again.
func isAway(err error) bool {
	switch etcdconn.Classify(err) {
	case etcdconn.Unreachable, etcdconn.Timeout, etcdconn.NoLeader, etcdconn.Overloaded:
		return true
	}
	return false
}

func (s *session) close() { _ = s.client.Close() } // nothing is left to send

// request bounds one request to etcd.
func (s *session) request(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.app.etcd.RequestTimeout)
}

// get reads one lock; a lock that nobody holds is an error.
func (s *session) get(ctx context.Context, name string) (metadata.Document, error) {
	asking, cancel := s.request(ctx)
	defer cancel()
	doc, _, err := s.store.Get(asking, name)
	switch {
	case err != nil:
		return doc, s.explain(ctx, "read "+text.Visible(name), err)
	case len(doc.Fields) == 0:
		return doc, noLockf("nobody holds %s", text.Visible(name))
	}
	return doc, nil
}

// explain puts an error of etcd into words. When the process was told to end, that is the error.
func (s *session) explain(ctx context.Context, doing string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &etcdError{doing, err}
}

// etcdError is an error of etcd in words.
type etcdError struct {
	doing string
	err   error
}

func (e *etcdError) Error() string { return e.doing + ": " + etcdconn.Explain(e.err) }
func (e *etcdError) Unwrap() error { return e.err }

// view runs a current view of all locks until stop. ended is called for every hold that ends.
func (s *session) view(ctx context.Context,
	ended func(*metadata.Record, *metadata.Ending)) (view *lockview.View, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	view = lockview.New(s.layout, lockview.Source{List: s.store.List, Watch: s.store.Watch, Ending: s.store.Ending},
		lockview.Options{
			Ended: ended, Explain: etcdconn.Explain,
		})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = view.Run(ctx) // ends only with the context
	}()
	return view, func() {
		cancel()
		<-done
	}
}

// locks is the library on this connection; it checks the options, which all its locks have. It logs only when more than
// warnings are asked for: the command reports the rest.
func (s *session) locks(options []mutex.Option) (*mutex.Client, error) {
	return s.locksOf(nil, options)
}

// locksOf is locks for a holder that is not identified as this process is.
func (s *session) locksOf(process *metadata.Process, options []mutex.Option) (*mutex.Client, error) {
	var logger *slog.Logger
	if s.log.GetLevel() < zerolog.WarnLevel {
		logger = mutexlog.Zerolog(s.log)
	}
	locks, err := mutex.New(s.client, mutex.Options{
		Prefix: s.layout.Prefix(), Logger: logger, Now: s.app.Now, Defaults: options, Process: process,
		RequestTimeout: s.app.etcd.RequestTimeout,
	})
	if err != nil {
		return nil, &statusError{ExitUsage, err}
	}
	return locks, nil
}
