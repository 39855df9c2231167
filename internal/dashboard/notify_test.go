package dashboard_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
)

func TestForceUnlockIsToldToSomebodyOutside(t *testing.T) {
	for name, c := range map[string]struct {
		failures int
		metric   string
		says     string
	}{
		"at once":             {0, `success`, "a notice was sent"},
		"after two failures":  {2, `success`, "a notice was sent"},
		"to nobody who hears": {9, `error`, "a notice could not be sent"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := busy()
				var heard []string
				d, done := operated(t, s, func(config *setup.Config) {
					config.ExternalURL = "https://locks.example/"
					config.Notify = func(ctx context.Context, notice []byte) error {
						if _, limited := ctx.Deadline(); !limited {
							t.Error("it may take forever")
						}
						if c.failures--; c.failures >= 0 {
							return errors.New("connection refused")
						}
						heard = append(heard, string(notice))
						return nil
					}
				})
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- d.Run(ctx) }()
				if w := post(d, "chief", unlockLink(s, stuck), s.wanted(stuck)); w.Code != http.StatusSeeOther ||
					len(*done) != 1 {
					t.Fatalf("the answer is %d %s", w.Code, w.Body)
				}
				time.Sleep(time.Minute)
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				for result, want := range map[string]float64{"success": 0, "error": 0, "dropped": 0, c.metric: 1} {
					if got := sample(t, d, "mutexdash_notices_total", result); got != want {
						t.Errorf("%v notices with the result %s, want %v", got, result, want)
					}
				}
				if !strings.Contains(s.log.String(), c.says) {
					t.Errorf("the log says %s", &s.log)
				}
				if c.metric != "success" {
					return
				}
				var notice map[string]string
				if err := json.Unmarshal([]byte(heard[0]), &notice); err != nil || len(heard) != 1 {
					t.Fatal(err, heard)
				}
				if notice["name"] != stuck || notice["actor"] != "chief" || notice["owner"] != "billing" ||
					!strings.HasPrefix(notice["url"], "https://locks.example/lock?name=billing/") {
					t.Errorf("told was %v", notice)
				}
			})
		})
	}
}

func TestRefusedForceUnlockIsToldToNobody(t *testing.T) {
	s := busy()
	d, done := operated(t, s, func(c *setup.Config) {
		c.Notify = func(context.Context, []byte) error { t.Error("it was told"); return nil }
	})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	form := s.wanted(stuck)
	form.Set("typed", "another")
	if w := post(d, "chief", unlockLink(s, stuck), form); w.Code != http.StatusUnprocessableEntity || len(*done) != 0 {
		t.Errorf("the answer is %d", w.Code)
	}
	if err := d.Run(ctx); err != nil {
		t.Error(err)
	}
}

// sample is the value of a metric of the dashboard with this result.
func sample(t *testing.T, d *dashboard.Dashboard, name, result string) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(d)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetValue() == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	return -1
}

func TestBrowsersAreToldToComeByTLSWhereItIsOurs(t *testing.T) {
	d := busy().dashboard(t, func(c *setup.Config) { c.HSTS = 180 * 24 * time.Hour })
	r := httptest.NewRequest("GET", "/", nil)
	for want, state := range map[string]*tls.ConnectionState{"": nil, "max-age=15552000": {}} {
		r.TLS = state
		w := httptest.NewRecorder()
		d.ServeHTTP(w, r)
		if got := w.Header().Get("Strict-Transport-Security"); got != want {
			t.Errorf("with TLS %v: %q, want %q", state != nil, got, want)
		}
	}
}
