package unlocker

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/config"
	"github.com/rs/zerolog"
	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/internal/alertpush"
	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

// pushOptions are the flags about Alertmanager.
type pushOptions struct {
	urls       []string
	resend     time.Duration
	labels     []string
	configFile string
}

func (o *pushOptions) define(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.urls, "alertmanager.url", nil,
		"`URL` of an Alertmanager that alerts about locks are pushed to, without Prometheus; comma separated or repeated for more")
	fs.DurationVar(&o.resend, "alertmanager.resend-delay", time.Minute,
		"time after which pushed alerts are sent again; Alertmanager ends those that it does not hear of for four times as long")
	fs.StringArrayVar(&o.labels, "alertmanager.label", nil,
		"`NAME=VALUE` of a label that every pushed alert gets, such as cluster=eu; repeatable")
	fs.StringVar(&o.configFile, "alertmanager.config.file", "",
		"`file` with user, token and TLS for the Alertmanagers, in the format of Prometheus' http_config")
}

func (o pushOptions) check() error {
	for _, url := range o.urls {
		if _, err := daemon.ParseURL("--alertmanager.url", url); err != nil {
			return err
		}
	}
	if o.resend < time.Second {
		return fmt.Errorf("--alertmanager.resend-delay is %v: give at least a second", o.resend)
	}
	if _, err := o.pairs(); err != nil {
		return err
	}
	if len(o.urls) == 0 && (len(o.labels) > 0 || o.configFile != "") {
		return fmt.Errorf("--alertmanager.label and --alertmanager.config.file are for --alertmanager.url, which is missing")
	}
	_, err := o.client()
	return err
}

// pairs are the labels.
func (o pushOptions) pairs() (map[string]string, error) {
	labels := map[string]string{}
	for _, text := range o.labels {
		name, value, ok := strings.Cut(text, "=")
		if !ok || !regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`).MatchString(name) || strings.HasPrefix(name, "__") {
			return nil, fmt.Errorf("--alertmanager.label can not be %q: it is of the form cluster=eu", text)
		}
		if slices.Contains([]string{"alertname", "lock", "severity"}, name) {
			return nil, fmt.Errorf("--alertmanager.label can not be %q: pushed alerts have such a label of their own",
				text)
		}
		labels[name] = value
	}
	return labels, nil
}

// renewable sends requests as the newest of its clients does.
type renewable struct {
	now atomic.Pointer[http.Client]
}

func (r *renewable) RoundTrip(request *http.Request) (*http.Response, error) {
	return r.now.Load().Transport.RoundTrip(request)
}

// client is what talks to the Alertmanagers. Files with passwords and certificates are read anew when they are needed.
func (o pushOptions) client() (*http.Client, error) {
	settings := config.DefaultHTTPClientConfig
	if o.configFile != "" {
		loaded, _, err := config.LoadHTTPConfigFile(o.configFile)
		if err != nil {
			return nil, fmt.Errorf("--alertmanager.config.file: %w", err)
		}
		settings = *loaded
	}
	client, err := config.NewClientFromConfig(settings, "alertmanager")
	if err != nil {
		return nil, fmt.Errorf("--alertmanager.config.file: %w", err)
	}
	return client, nil
}

// push joins the pusher to the view and the store; it is nil where nobody wants it.
func (r *rooms) push(o options, log zerolog.Logger) (*alertpush.Pusher, error) {
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
	r.alertmanager.now.Store(client)
	stays := *client
	stays.Transport = &r.alertmanager
	return alertpush.New(alertpush.Config{
		URLs: o.push.urls, Resend: o.push.resend, Labels: labels, Dashboard: dashboardURL(o.dashboard),
		Policy:  *o.sweep,
		Removes: r.config.Mode == sweeper.AutoUnlock,
		Locks:   r.view.Shown, Changed: r.view.Changed, Clock: r.view.Clock, Deadlocks: r.cycles,
		Backtrace: func(ctx context.Context, lock, uuid string) (string, error) {
			d, _, err := r.store.Get(ctx, lock)
			if err != nil || d.UUID != uuid {
				return "", err
			}
			return d.Backtrace, nil
		},
		Client: &stays, Log: log,
	})
}

// dashboardURL ends with a slash, so that the path of a page can follow.
func dashboardURL(url string) string {
	if url == "" {
		return ""
	}
	return strings.TrimSuffix(url, "/") + "/"
}
