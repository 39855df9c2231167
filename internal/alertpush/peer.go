package alertpush

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/alerttext"
	"github.com/clustermutex/unlocker/internal/protocol"
)

const (
	sendTimeout = 10 * time.Second
	maxPosted   = 200 // alerts in one request
	// forgetAfter is how many resend delays an alert lives in Alertmanager unless it is re-sent.
	forgetAfter = 4
	firstRetry  = time.Second
	lastRetry   = 30 * time.Second
)

// peer is one Alertmanager, and the alerts queued for it.
type peer struct {
	url, endpoint string
	c             *Config
	counts        counts

	mu      sync.Mutex
	waiting map[key]alert // the latest state of each
	wake    chan struct{} // holds a token if there are some
}

func newPeer(url string, c *Config, m *metrics) *peer {
	return &peer{
		url: url, endpoint: strings.TrimSuffix(url, "/") + "/api/v2/alerts", c: c,
		counts: m.of(url), waiting: map[key]alert{}, wake: make(chan struct{}, 1),
	}
}

// queue queues alerts for sending. It never waits.
func (p *peer) queue(alerts []alert) {
	if len(alerts) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range alerts {
		p.waiting[a.key] = a
	}
	signal(p.wake)
}

// take removes and returns what is queued, in the order in which the alerts began.
func (p *peer) take() []alert {
	p.mu.Lock()
	defer p.mu.Unlock()
	alerts := slices.SortedFunc(maps.Values(p.waiting), func(a, b alert) int { return a.starts.Compare(b.starts) })
	p.waiting = map[key]alert{}
	return alerts
}

// giveBack queues alerts again, unless a newer state of them is queued.
func (p *peer) giveBack(alerts []alert) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range alerts {
		if _, newer := p.waiting[a.key]; !newer {
			p.waiting[a.key] = a
		}
	}
}

// run sends what is queued until ctx ends. It retries failures, first after a second, in the end every 30 s.
func (p *peer) run(ctx context.Context) {
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		alerts := p.take()
		if len(alerts) == 0 {
			continue
		}
		err := p.send(ctx, alerts)
		if ctx.Err() != nil {
			return
		}
		p.logChange(failures, err)
		if err == nil {
			failures = 0
			continue
		}
		failures++
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(lastRetry, firstRetry<<min(failures-1, 5))):
		}
		signal(p.wake)
	}
}

// logChange logs the first failure and the first success after it.
func (p *peer) logChange(failures int, err error) {
	switch {
	case err != nil && failures == 0:
		p.c.Log.Warn().Err(err).Str("alertmanager", p.url).Msg("Alertmanager does not take alerts")
	case err == nil && failures > 0:
		p.c.Log.Info().Str("alertmanager", p.url).Int("failures", failures).Msg("Alertmanager takes alerts again")
	}
}

// send sends alerts, and queues again those that it could not send.
func (p *peer) send(ctx context.Context, alerts []alert) error {
	for len(alerts) > 0 {
		n := min(len(alerts), maxPosted)
		switch err := p.post(ctx, alerts[:n]).(type) {
		case nil:
			p.counts.success(p.c.Now())
		case refused: // it would be refused again; the next resend retries
			p.counts.failed.Inc()
			p.giveBack(alerts[n:])
			return err
		default:
			p.counts.failed.Inc()
			p.giveBack(alerts)
			return err
		}
		alerts = alerts[n:]
	}
	return nil
}

// refused is an answer that rejects the request itself.
type refused struct{ error }

// lapses is the annotation of an alert that is on. Alertmanager ends it by itself if nobody repeats it, and then still
// has the annotation; when an unlocker ends it, it is gone.
const lapses = "No unlocker reports this now, so it may not be over."

// posted is an alert in the form of Alertmanager's API.
type posted struct {
	Labels       map[string]string `json:"labels"`
	Annotations  map[string]string `json:"annotations"`
	StartsAt     time.Time         `json:"startsAt"`
	EndsAt       time.Time         `json:"endsAt"`
	GeneratorURL string            `json:"generatorURL,omitempty"`
}

func (p *peer) posted(a alert, now time.Time) posted {
	labels := maps.Clone(p.c.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels["alertname"], labels["severity"] = a.name, a.severity
	if a.attributes != "" {
		_ = json.Unmarshal([]byte(a.attributes), &labels) // we wrote it; what is there and not in it stays
	}
	for name, value := range map[string]string{"lock": a.lock, "locks": a.locks, "holders": a.holders,
		"owner": a.owner} {
		if value != "" || name == "lock" && a.locks == "" {
			labels[name] = value
		}
	}
	ends := a.ends
	notes := a.notes
	if ends.IsZero() {
		ends = now.Add(forgetAfter * p.c.Resend)
		notes = maps.Clone(notes)
		notes["lapses"] = lapses
	}
	starts := a.starts // maybe by a clock that is ahead; Alertmanager refuses what begins after its end
	for _, latest := range []time.Time{now, ends} {
		starts = protocol.Earlier(starts, latest)
	}
	return posted{labels, notes, starts.UTC(), ends.UTC(), a.notes["dashboard"]}
}

func (p *peer) post(ctx context.Context, alerts []alert) error {
	now := p.c.Now()
	body := make([]posted, len(alerts))
	for i, a := range alerts {
		body[i] = p.posted(a, now)
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	text, err := json.Marshal(body)
	req, noRequest := http.NewRequestWithContext(ctx, http.MethodPost, p.endpoint, bytes.NewReader(text))
	if err := cmp.Or(err, noRequest); err != nil {
		return refused{err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "unlocker")
	resp, err := p.c.Client().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return judgeAnswer(resp)
}

func judgeAnswer(resp *http.Response) error {
	if resp.StatusCode/100 == 2 {
		_, err := io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16)) // so that the connection can be reused
		return err
	}
	says, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
	err := fmt.Errorf("it answers %s: %s", resp.Status, alerttext.Line(strings.TrimSpace(string(says))))
	if resp.StatusCode == http.StatusBadRequest || resp.StatusCode == http.StatusRequestEntityTooLarge {
		return refused{err}
	}
	return err
}
