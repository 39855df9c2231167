package daemon

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
)

// WebSettings describe how HTTP is served.
type WebSettings struct {
	Address    string // host:port; host may be empty
	OpsAddress string // of probes and metrics if they have a listener of their own
	// ProbeAddress is an extra address for probes only: for probers that cannot log in, where metrics need a login. May
	// be empty.
	ProbeAddress string
	// ConfigFile is the exporter-toolkit's web configuration: TLS, client certificates, users with bcrypt passwords.
	// Its certificates are reread for every connection. It does not apply to OpsAddress and ProbeAddress.
	ConfigFile  string
	ExternalURL string // at which users reach the server, for links
	// RoutePrefix is the path that all routes begin with; empty means the path of ExternalURL.
	RoutePrefix string

	ShutdownDelay   time.Duration // between readiness 503 and stopping the first part
	ShutdownTimeout time.Duration // for all parts to stop
	Pprof           bool          // profiles below /debug/pprof/ of the ops handler
}

// Check returns one sentence about what cannot work.
func (s WebSettings) Check() error {
	for _, address := range []string{s.Address, s.OpsAddress, s.ProbeAddress} {
		if _, _, err := net.SplitHostPort(address); err != nil && address != "" {
			return fmt.Errorf("the listen address %q is not of the form host:port", address)
		}
	}
	for _, other := range []string{s.OpsAddress, s.ProbeAddress} {
		if other != "" && other == s.Address {
			return fmt.Errorf("two listeners have the same address %s", s.Address)
		}
	}
	if _, err := s.external(); err != nil {
		return err
	}
	if s.RoutePrefix != "" && !strings.HasPrefix(s.RoutePrefix, "/") {
		return fmt.Errorf("the route prefix %q does not begin with a slash", s.RoutePrefix)
	}
	if s.ShutdownDelay < 0 || s.ShutdownTimeout < 0 {
		return errors.New("a shutdown time is negative")
	}
	if err := web.Validate(s.ConfigFile); err != nil {
		return fmt.Errorf("the web configuration %s (--web.config.file): %w", s.ConfigFile, err)
	}
	return nil
}

// Prefix returns the path that all routes begin with, without a trailing slash: "" is the root.
func (s WebSettings) Prefix() string {
	prefix := s.RoutePrefix
	if prefix == "" {
		if u, err := s.external(); err == nil && u != nil {
			prefix = u.Path
		}
	}
	return strings.TrimSuffix(path.Clean("/"+prefix), "/")
}

// external returns nil if no URL is given.
func (s WebSettings) external() (*url.URL, error) {
	if s.ExternalURL == "" {
		return nil, nil
	}
	return ParseURL("the external URL", s.ExternalURL)
}

// ParseURL parses the URL of a server, perhaps with a path. Errors call it what.
func ParseURL(what, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%s %q is not of the form https://host/path", what, text)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%s %q is more than scheme, host and path", what, text)
	}
	return u, nil
}
