package etcdconn

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Trouble finds out why etcd cannot be used. It logs each class of reason once per outage, and serves the current one.
// The failing calls themselves cannot tell: they wait for a connection until they time out, and learn no more than
// that.
type Trouble struct {
	Etcd   *clientv3.Client
	Prefix string // that Prove reads
	// Well reports whether etcd can be used, from what is known without asking etcd. While it does, etcd is not asked.
	Well func() bool
	Log  zerolog.Logger

	mu    sync.Mutex
	class Class
	cause string
	told  map[Class]bool
}

const (
	troubleEvery   = time.Second
	troubleTimeout = 5 * time.Second
)

// Cause returns one sentence, or "" if etcd can be used.
func (t *Trouble) Cause() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cause
}

// Class returns the class of the reason, or "" if etcd can be used.
func (t *Trouble) Class() Class {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.class
}

// Run checks every second until ctx ends.
func (t *Trouble) Run(ctx context.Context) error {
	ticker := time.NewTicker(troubleEvery)
	defer ticker.Stop()
	for {
		t.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (t *Trouble) look(ctx context.Context) {
	if t.Well() {
		t.over()
		return
	}
	try, cancel := context.WithTimeout(ctx, troubleTimeout)
	defer cancel()
	switch err := Prove(try, t.Etcd, t.Prefix); {
	case ctx.Err() != nil:
	case err == nil:
		t.over()
	default:
		t.is(err)
	}
}

func (t *Trouble) is(err error) {
	class := Other
	if e, ok := errors.AsType[*Error](err); ok {
		class = e.Class
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.class, t.cause = class, err.Error()
	if t.told[class] {
		return
	}
	if t.told == nil {
		t.told = map[Class]bool{}
	}
	t.told[class] = true
	t.Log.Error().Str("class", string(class)).Msg("etcd cannot be used: " + t.cause)
}

func (t *Trouble) over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause != "" {
		t.Log.Info().Msg("etcd can be used again")
	}
	t.class = ""
	t.cause = ""
	t.told = nil
}
