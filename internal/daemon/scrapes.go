package daemon

import (
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	maxScrapes    = 16               // responses that are being sent
	scrapeTimeout = 20 * time.Second // to gather one
)

// scrapes serves metrics even if many clients request them and never read the response: responses are built one at a
// time, in memory, and if too many are being sent, the oldest is dropped. A limit that refused the newest would refuse
// Prometheus.
type scrapes struct {
	metrics http.Handler
	build   sync.Mutex // held while a response is built

	mu      sync.Mutex
	sending []*http.ResponseController // of the responses that are being sent, oldest first
}

func (s *scrapes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := s.render(r)
	reader := http.NewResponseController(w)
	s.register(reader)
	defer s.unregister(reader)
	maps.Copy(w.Header(), answer.header)
	w.Header().Set("Content-Length", strconv.Itoa(answer.Len()))
	w.WriteHeader(answer.status)
	_, _ = w.Write(answer.Bytes()) // fails for a client that was dropped, or has left
}

// render builds a response, unless the client has left while it waited.
func (s *scrapes) render(r *http.Request) *bufferedResponse {
	answer := &bufferedResponse{header: http.Header{}, status: http.StatusOK}
	s.build.Lock()
	defer s.build.Unlock()
	if r.Context().Err() == nil {
		s.metrics.ServeHTTP(answer, r)
	}
	return answer
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

type bufferedResponse struct {
	bytes.Buffer
	header http.Header
	status int
}

func (a *bufferedResponse) Header() http.Header { return a.header }

func (a *bufferedResponse) WriteHeader(status int) { a.status = status }
