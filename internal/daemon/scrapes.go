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
	maxScrapes    = 16               // responses that are being sent
	scrapeTimeout = 20 * time.Second // to build a response, including the wait for the slot
)

// scrapes serves metrics even if many clients request them and never read the response: responses are built one at a
// time, in memory, and if too many are being sent, the oldest is dropped. A limit that refused the newest would refuse
// Prometheus.
type scrapes struct {
	metrics http.Handler
	slot    chan struct{} // capacity 1: taken while a response is built

	mu      sync.Mutex
	sending []*http.ResponseController // of the responses that are being sent, oldest first
}

func newScrapes(metrics http.Handler) *scrapes {
	return &scrapes{metrics: metrics, slot: make(chan struct{}, 1)}
}

// ServeHTTP serves the metrics.
func (s *scrapes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, err := s.render(r)
	if err != nil {
		http.Error(w, "the metrics were not gathered in time", http.StatusServiceUnavailable)
		return
	}
	reader := http.NewResponseController(w)
	s.register(reader)
	defer s.unregister(reader)
	maps.Copy(w.Header(), answer.header)
	w.Header().Set("Content-Length", strconv.Itoa(answer.Len()))
	w.WriteHeader(answer.status)
	_, _ = w.Write(answer.Bytes()) // fails for a client that was dropped, or has left
}

// render builds a response, one at a time.
func (s *scrapes) render(r *http.Request) (*bufferedResponse, error) {
	ctx, cancel := context.WithTimeout(r.Context(), scrapeTimeout)
	defer cancel()
	select {
	case s.slot <- struct{}{}:
		defer func() { <-s.slot }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	answer := &bufferedResponse{header: http.Header{}, status: http.StatusOK}
	s.metrics.ServeHTTP(answer, r)
	return answer, nil
}

// register adds a response to those that are being sent, and drops the oldest if there are too many.
func (s *scrapes) register(reader *http.ResponseController) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sending) == maxScrapes {
		_ = s.sending[0].SetWriteDeadline(time.Now()) // without a network there is nothing to cut off
		s.sending = slices.Delete(s.sending, 0, 1)
	}
	s.sending = append(s.sending, reader)
}

func (s *scrapes) unregister(reader *http.ResponseController) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sending = slices.DeleteFunc(s.sending, func(other *http.ResponseController) bool { return other == reader })
}

// bufferedResponse is a response in memory.
type bufferedResponse struct {
	bytes.Buffer
	header http.Header
	status int
}

func (a *bufferedResponse) Header() http.Header { return a.header }

func (a *bufferedResponse) WriteHeader(status int) { a.status = status }
