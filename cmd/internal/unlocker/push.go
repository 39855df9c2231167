package unlocker

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/cmd/internal/wiring"
	"github.com/clustermutex/unlocker/internal/alertpush"
	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

type pushOptions struct {
	urls       []string
	resend     time.Duration
	labels     []string
	attributes []string
	configFile string
}

func (o *pushOptions) define(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.urls, "alertmanager.url", nil,
		"`URL` of an Alertmanager to push alerts about locks to, without Prometheus; comma-separated or repeated")
	fs.DurationVar(&o.resend, "alertmanager.resend-delay", time.Minute,
		"how often active alerts are re-sent; Alertmanager ends those that it has not received for four times as long")
	fs.StringArrayVar(&o.labels, "alertmanager.label", nil,
		"`NAME=VALUE` of a label for every pushed alert, such as cluster=eu; repeatable")
	fs.StringSliceVar(&o.attributes, "alertmanager.label-attribute", []string{"team"},
		"`ATTRIBUTE` of a lock's record, or LABEL=ATTRIBUTE, that becomes a label of pushed alerts; comma-separated or "+
			"repeated")
	fs.StringVar(&o.configFile, "alertmanager.config.file", "",
		"`file` with user, token and TLS settings for the Alertmanagers, in the format of Prometheus' http_config")
}

func (o pushOptions) check() error {
	for _, url := range o.urls {
		if _, err := daemon.ParseURL("--alertmanager.url", url); err != nil {
			return err
		}
	}
	if o.resend < time.Second {
		return fmt.Errorf("--alertmanager.resend-delay is %v: it must be at least 1s", o.resend)
	}
	if _, err := o.pairs(); err != nil {
		return err
	}
	if _, err := labelAttributes("--alertmanager.label-attribute", o.attributes); err != nil {
		return err
	}
	if len(o.urls) == 0 && (len(o.labels) > 0 || o.configFile != "") {
		return fmt.Errorf("--alertmanager.label and --alertmanager.config.file are for --alertmanager.url, which is " +
			"missing")
	}
	_, err := o.client()
	return err
}

func (o pushOptions) pairs() (map[string]string, error) {
	labels := map[string]string{}
	for _, pair := range o.labels {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || !isLabelName(name) {
			return nil, fmt.Errorf("--alertmanager.label cannot be %q: it must be of the form cluster=eu", pair)
		}
		if slices.Contains(ownLabels(), name) {
			return nil, fmt.Errorf("--alertmanager.label cannot be %q: pushed alerts have that label already",
				pair)
		}
		labels[name] = value
	}
	return labels, nil
}

// ownLabels are the labels that alerts about locks have anyway.
func ownLabels() []string {
	return []string{"alertname", "severity", "lock", "locks", "holders", "owner", "hostname", "cause"}
}

func isLabelName(name string) bool {
	return regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`).MatchString(name) && !strings.HasPrefix(name, "__")
}

// labelAttributes returns the attributes of records that become labels, by label.
func labelAttributes(flag string, given []string) (map[string]string, error) {
	attributes := map[string]string{}
	for _, entry := range given {
		label, attribute, renamed := strings.Cut(entry, "=")
		if !renamed {
			attribute = label
		}
		switch {
		case !isLabelName(label) || attribute == "":
			return nil, fmt.Errorf("%s cannot be %q: it must be of the form team, or label=attribute", flag, entry)
		case slices.Contains(ownLabels(), label):
			return nil, fmt.Errorf("%s cannot be %q: alerts have that label already", flag, entry)
		case attributes[label] != "":
			return nil, fmt.Errorf("%s has two attributes for the label %s", flag, label)
		}
		attributes[label] = attribute
	}
	return attributes, nil
}

// maxSeriesAttributes is how many attributes may be labels of series: each lock's record may have others.
const maxSeriesAttributes = 5

// seriesAttributes returns the attributes of records that become labels of the series of locks, by label.
func seriesAttributes(given []string) (map[string]string, error) {
	const flag = "--metrics.label-attribute"
	attributes, err := labelAttributes(flag, given)
	if err != nil {
		return nil, err
	}
	for _, label := range []string{"cluster", "namespace", "job", "instance", "purpose"} {
		if attributes[label] != "" {
			return nil, fmt.Errorf("%s cannot be %q: series have that label already", flag, label)
		}
	}
	if n := len(attributes); n > maxSeriesAttributes {
		return nil, fmt.Errorf("%s has %d attributes: at most %d become labels", flag, n, maxSeriesAttributes)
	}
	return attributes, nil
}

// client returns the client for the Alertmanagers. It rereads files with passwords and certificates as needed.
func (o pushOptions) client() (*http.Client, error) {
	return wiring.HTTPClient("alertmanager", o.configFile)
}

// push connects the pusher to the view and the store; it is nil if not configured.
func (r *components) push(o options, log zerolog.Logger) (*alertpush.Pusher, error) {
	if len(o.push.urls) == 0 {
		return nil, nil
	}
	client, err := o.push.client()
	if err != nil {
		return nil, err
	}
	labels, err := o.push.pairs()
	if err != nil {
		return nil, err
	}
	attributes, err := labelAttributes("--alertmanager.label-attribute", o.push.attributes)
	if err != nil {
		return nil, err
	}
	r.alertmanager.Store(client)
	return alertpush.New(alertpush.Config{
		URLs: o.push.urls, Resend: o.push.resend, Labels: labels, Attributes: attributes,
		Dashboard: dashboardURL(o.dashboard), Policy: *o.sweep,
		Removes: r.config.Mode == sweeper.AutoUnlock, Excluded: r.excluded,
		Locks: r.view.Shown, Changed: r.view.Changed, Clock: r.view.Clock, Deadlocks: r.cycles,
		Unclaimed: r.unclaimed, Waiters: func(queue string) int { return len(r.view.Waiters(queue)) },
		Backtrace: func(ctx context.Context, lock, uuid string) (string, error) {
			d, _, err := r.store.Get(ctx, lock)
			if err != nil || d.UUID != uuid {
				return "", err
			}
			return d.Backtrace, nil
		},
		Client: r.alertmanager.Load, Log: log,
	}), nil
}

// dashboardURL returns the URL with a trailing slash, so that the path of a page can follow.
func dashboardURL(url string) string {
	if url == "" {
		return ""
	}
	return strings.TrimSuffix(url, "/") + "/"
}

const (
	// searchEvery is how often deadlocks are searched for. A cycle is logged if two searches in a row find it: busy
	// workers that do several things at once seem to wait for each other for a moment all day.
	searchEvery = 5 * time.Second
	// maxLogged bounds the number of cycles logged at a time, and maxWaits the waits in one line.
	maxLogged = 20
	maxWaits  = 10
)

// deadlockLogger logs when processes begin to wait for each other, and when they no longer do. Nothing else is done
// about it.
type deadlockLogger struct {
	cycles func() []deadlock.Cycle
	log    zerolog.Logger

	found  map[string]deadlock.Cycle // by the last search
	logged map[string]deadlock.Cycle // logged, and not over
}

func newDeadlockLogger(cycles func() []deadlock.Cycle, log zerolog.Logger) *deadlockLogger {
	return &deadlockLogger{cycles: cycles, log: log, logged: map[string]deadlock.Cycle{}}
}

// Run searches until ctx ends.
func (d *deadlockLogger) Run(ctx context.Context) error {
	ticker := time.NewTicker(searchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			d.search()
		}
	}
}

func (d *deadlockLogger) search() {
	now := map[string]deadlock.Cycle{}
	for _, c := range d.cycles() {
		locks, holders := c.Labels()
		key := locks + "\n" + holders
		now[key] = c
		_, before := d.found[key]
		if _, logged := d.logged[key]; before && !logged && len(d.logged) < maxLogged {
			d.logged[key] = c
			describe(d.log.Warn(), c).Str("waits", waits(c)).
				Msg("processes wait for each other's locks, maybe forever")
		}
	}
	for key, c := range d.logged {
		if _, still := now[key]; !still {
			delete(d.logged, key)
			describe(d.log.Info(), c).Msg("these processes no longer wait for each other")
		}
	}
	d.found = now
}

func describe(e *zerolog.Event, c deadlock.Cycle) *zerolog.Event {
	locks, holders := c.Labels()
	e = e.Str("locks", locks).Str("holders", holders)
	if !c.Since.IsZero() {
		e = e.Time("since", c.Since.UTC())
	}
	return e
}

// waits describes the waits: "billing on host-1:7 waits for orders, held by search on host-2:8; …".
func waits(c deadlock.Cycle) string {
	steps, more := c.Say(maxWaits, text.Label)
	if more > 0 {
		steps = append(steps, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(steps, "; ")
}
