package etcdconn

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Offset is how far the clock of one etcd member is ahead of ours.
type Offset struct {
	Endpoint string
	Offset   time.Duration // negative if that clock is behind; valid if Err is nil
	Within   time.Duration // how exact Offset is
	Err      error
}

// ClockOffsets asks all endpoints concurrently for their time: the Date header of /version, which needs no permission.
// It is exact to half a second plus half the round trip.
func ClockOffsets(ctx context.Context, s Settings) []Offset {
	targets, err := s.targets()
	if err != nil {
		return []Offset{{Err: err}}
	}
	security, err := s.tlsConfig()
	if err != nil {
		return []Offset{{Err: err}}
	}
	transport := &http.Transport{TLSClientConfig: security, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	all := make([]Offset, len(targets))
	var wg sync.WaitGroup
	for i, t := range targets {
		wg.Go(func() { all[i] = offset(ctx, transport, t.String()) })
	}
	wg.Wait()
	return all
}

func offset(ctx context.Context, transport http.RoundTripper, endpoint string) Offset {
	o := Offset{Endpoint: endpoint}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/version", nil)
	if err != nil {
		o.Err = err
		return o
	}
	asked := time.Now()
	answer, err := transport.RoundTrip(request)
	took := time.Since(asked)
	if err != nil {
		o.Err = fmt.Errorf("ask %s for its time: %w", endpoint, err)
		return o
	}
	defer answer.Body.Close()
	io.Copy(io.Discard, io.LimitReader(answer.Body, 4096))
	there, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		o.Err = fmt.Errorf("ask %s for its time: its answer has no date", endpoint)
		return o
	}
	// The date is truncated to the second, so add half of one; it was written halfway between request and response.
	o.Offset = there.Add(time.Second / 2).Sub(asked.Add(took / 2))
	o.Within = time.Second/2 + took/2
	return o
}
