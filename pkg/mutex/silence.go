package mutex

import (
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"
)

// silentAfter is how long etcd must leave all requests of a client unanswered before that is logged.
const silentAfter = 3 * time.Second

// silence is a time in which etcd answered no request of a client. It is logged once when it has lasted for a while,
// and once when it is over.
type silence struct {
	logger
	etcd *clientv3.Client

	quiet  atomic.Bool // it has begun
	mu     sync.Mutex
	since  time.Time // zero while etcd answers
	logged bool      // that it lasts
}

// unanswered notes that a request that was sent at this time was not answered.
func (s *silence) unanswered(sent time.Time, err error) {
	s.mu.Lock()
	if s.since.IsZero() {
		s.since = sent
	}
	lasts := time.Since(s.since)
	overdue := !s.logged && lasts >= silentAfter
	s.logged = s.logged || overdue
	s.quiet.Store(true)
	s.mu.Unlock()
	if !overdue {
		return
	}
	message := "etcd does not answer; requests are repeated"
	if conn := s.etcd.ActiveConnection(); conn != nil && conn.GetState() == connectivity.Ready {
		message = "etcd does not answer on a connection that is open; " +
			"without DialKeepAliveTime a dead one may be kept for a quarter of an hour"
	}
	endpoints := strings.Join(s.etcd.Endpoints(), ",")
	s.log(slog.LevelWarn, message, slog.String("endpoints", endpoints), slog.Duration("for", lasts),
		slog.Any("error", err))
}

// answered notes that etcd answered.
func (s *silence) answered() {
	if !s.quiet.Load() {
		return
	}
	s.mu.Lock()
	lasted, logged := time.Since(s.since), s.logged
	s.since = time.Time{}
	s.logged = false
	s.quiet.Store(false)
	s.mu.Unlock()
	if logged {
		s.log(slog.LevelInfo, "etcd answers again", slog.Duration("after", lasted))
	}
}
