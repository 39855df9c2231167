package daemon

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	maxScrapes   = 16               // whose answers are on their way
	scrapeWithin = 20 * time.Second // in which an answer is made, and in which its turn comes before that
)

// scrapes serves metrics even while many other clients request them and never read the response: responses are built
// one at a time, in memory, and when too many are in flight, the oldest is dropped. A limit that refuses the newest
// instead would refuse Prometheus.
type scrapes struct {
	metrics http.Handler
	turn    chan struct{} // has room for the one whose answer is made

	mu     sync.Mutex
	unread []*http.ResponseController // of answers on their way, oldest first
}

func newScrapes(metrics http.Handler) *scrapes {
	return &scrapes{metrics: metrics, turn: make(chan struct{}, 1)}
}

// ServeHTTP answers a scrape.
func (s *scrapes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, err := s.make(r)
	if err != nil {
		http.Error(w, "the metrics were not gathered in time", http.StatusServiceUnavailable)
		return
	}
	reader := http.NewResponseController(w)
	s.enter(reader)
	defer s.leave(reader)
	maps.Copy(w.Header(), answer.header)
	w.Header().Set("Content-Length", strconv.Itoa(answer.Len()))
	w.WriteHeader(answer.status)
	_, _ = w.Write(answer.Bytes()) // who does not read it has given way, or goes with the server's time limit
}

// make makes an answer when its turn comes.
func (s *scrapes) make(r *http.Request) (*inMemory, error) {
	ctx, cancel := context.WithTimeout(r.Context(), scrapeWithin)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	answer := &inMemory{header: http.Header{}, status: http.StatusOK}
	s.metrics.ServeHTTP(answer, r)
	return answer, nil
}

// enter makes room for an answer: the oldest that is on its way is cut off if there are too many.
func (s *scrapes) enter(reader *http.ResponseController) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unread) == maxScrapes {
		_ = s.unread[0].SetWriteDeadline(time.Now()) // a writer without a network waits for nobody
		s.unread = slices.Delete(s.unread, 0, 1)
	}
	s.unread = append(s.unread, reader)
}

func (s *scrapes) leave(reader *http.ResponseController) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unread = slices.DeleteFunc(s.unread, func(other *http.ResponseController) bool { return other == reader })
}

// inMemory is an answer that is not sent yet.
type inMemory struct {
	bytes.Buffer
	header http.Header
	status int
}

// Header implements [http.ResponseWriter].
func (a *inMemory) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter].
func (a *inMemory) WriteHeader(status int) { a.status = status }
