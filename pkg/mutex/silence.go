package mutex

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/connectivity"
)

// silentAfter is how long etcd must leave all requests of a client unanswered before that is logged.
const silentAfter = 3 * time.Second

// silence is a time in which no request of a client was answered. It is logged once when it has lasted for a while, and
// once when it is over.
type silence struct {
	mu     sync.Mutex
	since  time.Time // zero while etcd answers
	logged bool      // that it lasts
}

// unanswered notes that a request that was sent at this time was not answered.
func (c *Client) unanswered(sent time.Time, err error) {
	s := &c.silence
	s.mu.Lock()
	if s.since.IsZero() {
		s.since = sent
	}
	lasts := time.Since(s.since)
	overdue := !s.logged && lasts >= silentAfter
	s.logged = s.logged || overdue
	c.quiet.Store(true)
	s.mu.Unlock()
	if !overdue {
		return
	}
	message := "etcd does not answer, and is asked again and again"
	if conn := c.etcd.ActiveConnection(); conn != nil && conn.GetState() == connectivity.Ready {
		message = "etcd does not answer on a connection that is open; " +
			"without DialKeepAliveTime a dead one may be kept for a quarter of an hour"
	}
	endpoints := strings.Join(c.etcd.Endpoints(), ",")
	c.log(slog.LevelWarn, message, slog.String("endpoints", endpoints), slog.Duration("for", lasts),
		slog.Any("error", err))
}

// answered notes that etcd answered.
func (c *Client) answered() {
	if !c.quiet.Load() {
		return
	}
	s := &c.silence
	s.mu.Lock()
	lasted, logged := time.Since(s.since), s.logged
	s.since = time.Time{}
	s.logged = false
	c.quiet.Store(false)
	s.mu.Unlock()
	if logged {
		c.log(slog.LevelInfo, "etcd answers again", slog.Duration("after", lasted))
	}
}
