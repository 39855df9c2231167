package mutexdash

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/prometheus/common/config"
	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/dashboard/trends"
	"github.com/clustermutex/unlocker/internal/promquery"
	"github.com/clustermutex/unlocker/internal/text"
)

// prometheusOptions holds the flags about a Prometheus that remembers more than the dashboard.
type prometheusOptions struct {
	url, match, configFile string
}

func (o *prometheusOptions) define(fs *pflag.FlagSet) {
	fs.StringVar(&o.url, "prometheus.url", "",
		"`URL` of a Prometheus that scrapes the unlockers, for who waited in the last 24 hours, on the page of a lock")
	fs.StringVar(&o.match, "prometheus.match", "",
		"`matchers` that distinguish these unlockers from others in that Prometheus, such as 'cluster=\"eu\"'")
	fs.StringVar(&o.configFile, "prometheus.config.file", "",
		"`file` with user, token and TLS settings for it, in the format of Prometheus' http_config")
}

// waited returns what asks Prometheus; nil if none is configured.
func (o prometheusOptions) waited() (func(context.Context, string, time.Time, time.Time) ([]trends.Sample, error),
	error) {
	if o.url == "" {
		if o.match != "" || o.configFile != "" {
			return nil, errors.New("--prometheus.match and --prometheus.config.file are for --prometheus.url, " +
				"which is missing")
		}
		return nil, nil
	}
	if _, err := daemon.ParseURL("--prometheus.url", o.url); err != nil {
		return nil, err
	}
	settings := config.DefaultHTTPClientConfig
	if o.configFile != "" {
		loaded, _, err := config.LoadHTTPConfigFile(o.configFile)
		if err != nil {
			return nil, fmt.Errorf("--prometheus.config.file: %w", err)
		}
		settings = *loaded
	}
	transport, err := config.NewClientFromConfig(settings, "prometheus")
	if err != nil {
		return nil, fmt.Errorf("--prometheus.config.file: %w", err)
	}
	return o.ask(&promquery.Client{URL: o.url, HTTP: transport}), nil
}

// ask asks for the waiters of a lock, as all unlockers counted them.
func (o prometheusOptions) ask(c *promquery.Client) func(context.Context, string, time.Time, time.Time) (
	[]trends.Sample, error) {
	return func(ctx context.Context, lock string, from, to time.Time) ([]trends.Sample, error) {
		matchers := promquery.Matcher("lock", text.NameLabel(lock))
		if o.match != "" {
			matchers += "," + o.match
		}
		query := fmt.Sprintf("max(max_over_time(unlocker_lock_waiters{%s}[%ds]))", matchers, int(trends.Slot.Seconds()))
		// A sample at the end of a slot is about the slot.
		found, err := c.Range(ctx, query, from.Add(trends.Slot), to.Add(trends.Slot), trends.Slot)
		if err != nil {
			return nil, short(err)
		}
		samples := make([]trends.Sample, 0, len(found))
		for _, s := range found {
			if !math.IsNaN(s.Value) && s.Value >= 0 {
				n := int(min(s.Value, math.MaxInt32))
				samples = append(samples, trends.Sample{At: s.At.Add(-trends.Slot), N: n})
			}
		}
		return samples, nil
	}
}

// short is what a viewer may know of an error: no address.
func short(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("timeout")
	case errors.Is(err, http.ErrSchemeMismatch):
		return errors.New("it does not speak TLS")
	}
	return errors.New("it did not answer the question")
}
