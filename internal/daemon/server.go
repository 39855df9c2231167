package daemon

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/exporter-toolkit/web"
	"github.com/rs/zerolog"
	"go.yaml.in/yaml/v3"

	"github.com/clustermutex/unlocker/internal/certificate"
)

// Server serves HTTP on one address. Its time and size limits suit pages and metrics, not uploads or streams.
type Server struct {
	Address    string
	Flag       string // name of the flag for Address
	ConfigFile string // of the exporter-toolkit; may be empty
	Handler    http.Handler
	Drain      time.Duration // how long requests in flight may take after it is stopped
	Log        zerolog.Logger

	listener net.Listener
}

// NewServer returns a server for the address of the settings.
func (s WebSettings) NewServer(handler http.Handler) *Server {
	return &Server{Address: s.Address, Flag: "--web.listen-address", ConfigFile: s.ConfigFile, Handler: handler,
		Drain: s.ShutdownTimeout}
}

// Listen binds the address, before anything runs, and returns it, with the port that was chosen for port 0.
func (s *Server) Listen() (address string, err error) {
	l, err := net.Listen("tcp", s.Address)
	if err != nil {
		return "", fmt.Errorf("%s: %w", s.Flag, err)
	}
	s.listener = smallBufferListener{l}
	return l.Addr().String(), nil
}

// writeBufferBytes is the size of the kernel's buffer for responses. By default it holds megabytes: a client that
// pipelines requests and reads nothing could have dozens of pages built while all others wait. With a small buffer, the
// next response is built only once the last was read.
const writeBufferBytes = 16 << 10

// smallBufferListener accepts connections with small write buffers.
type smallBufferListener struct{ net.Listener }

func (l smallBufferListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(writeBufferBytes) // only an optimization
	}
	return c, err
}

// Run serves on the bound address until ctx ends, then lets requests in flight finish for Drain.
func (s *Server) Run(ctx context.Context) error {
	server := &http.Server{
		Handler:           s.Handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          stdLogger(s.Log),
	}
	ended := make(chan error, 1)
	go func() {
		ended <- web.Serve(s.listener, server, &web.FlagConfig{WebConfigFile: &s.ConfigFile}, slogLogger(s.Log))
	}()
	select {
	case err := <-ended:
		s.listener.Close()
		return err
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Drain)
	defer cancel()
	if err := server.Shutdown(drain); err != nil {
		server.Close()
		return fmt.Errorf("requests were still in flight after %v", s.Drain)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

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

// Check returns an error, in one sentence, if the settings cannot work.
func (s WebSettings) Check() error {
	if err := s.checkAddresses(); err != nil {
		return err
	}
	if _, err := s.externalURL(); err != nil {
		return err
	}
	if s.RoutePrefix != "" && !strings.HasPrefix(s.RoutePrefix, "/") {
		return fmt.Errorf("--web.route-prefix %q does not begin with a slash", s.RoutePrefix)
	}
	if err := web.Validate(s.ConfigFile); err != nil {
		return fmt.Errorf("the web configuration %s (--web.config.file): %w", s.ConfigFile, err)
	}
	return nil
}

func (s WebSettings) checkAddresses() error {
	const own, ops, probes = "--web.listen-address", "--web.ops-address", "--web.probe-address"
	for flag, address := range map[string]string{own: s.Address, ops: s.OpsAddress, probes: s.ProbeAddress} {
		_, port, err := net.SplitHostPort(address)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		switch {
		case address == "":
		case err != nil:
			return fmt.Errorf("%s %q is not of the form host:port", flag, address)
		case flag != own && address == s.Address && port != "0": // 0 is any free port
			return fmt.Errorf("%s and %s are both %s", own, flag, address)
		}
	}
	return nil
}

// Prefix returns the path that all routes begin with, without a trailing slash: "" is the root.
func (s WebSettings) Prefix() string {
	prefix := s.RoutePrefix
	if prefix == "" {
		if u, err := s.externalURL(); err == nil && u != nil {
			prefix = u.Path
		}
	}
	return strings.TrimSuffix(path.Clean("/"+prefix), "/")
}

// externalURL returns the parsed ExternalURL; nil if it is empty.
func (s WebSettings) externalURL() (*url.URL, error) {
	return ParseURL("the external URL", s.ExternalURL)
}

// ParseURL parses the URL of a server, which may have a path; nil for an empty one. Errors call it what.
func ParseURL(what, text string) (*url.URL, error) {
	if text == "" {
		return nil, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%s %q is not of the form https://host/path", what, text)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%s %q is more than scheme, host and path", what, text)
	}
	return u, nil
}

// Readiness tells probes whether a program should get requests. The zero Readiness is ready.
type Readiness struct {
	checks   []check
	draining atomic.Bool
}

type check struct {
	name string
	ask  func() error
}

// Add adds a condition, before the first probe. It is called for every probe and must be quick; the response to the
// probe has its error.
func (r *Readiness) Add(name string, ask func() error) {
	r.checks = append(r.checks, check{name, ask})
}

// Drain ends readiness for good: the program is about to stop. It is a no-op for a nil Readiness.
func (r *Readiness) Drain() {
	if r != nil {
		r.draining.Store(true)
	}
}

// Check returns the errors of all conditions that are not excluded.
func (r *Readiness) Check(excluded ...string) error {
	if r.draining.Load() {
		return errors.New("shutting down")
	}
	var problems []error
	for _, c := range r.checks {
		if slices.Contains(excluded, c.name) {
			continue
		}
		if err := c.ask(); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", c.name, err))
		}
	}
	return errors.Join(problems...)
}

// ServeHTTP answers a probe with 200 or 503. The parameter exclude, which may be repeated, leaves out a condition.
func (r *Readiness) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	excluded := request.URL.Query()["exclude"]
	var known []string
	for _, c := range r.checks {
		known = append(known, c.name)
	}
	if slices.ContainsFunc(excluded, func(name string) bool { return !slices.Contains(known, name) }) {
		writeText(w, http.StatusBadRequest, "exclude does not name a condition: there are "+strings.Join(known, ", "))
		return
	}
	if err := r.Check(excluded...); err != nil {
		writeText(w, http.StatusServiceUnavailable, "not ready: "+err.Error())
		return
	}
	writeText(w, http.StatusOK, "ready")
}

func writeText(w http.ResponseWriter, code int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	fmt.Fprintln(w, text)
}

// Ops serves the endpoints for operation: liveness, readiness, metrics, profiles.
type Ops struct {
	Ready   *Readiness
	Metrics *prometheus.Registry
	Pprof   bool
	Log     zerolog.Logger
}

// Probes serves /livez, which always succeeds, and /readyz, where exclude=NAME leaves out a condition.
func (o Ops) Probes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "alive") })
	mux.Handle("GET /readyz", o.Ready)
	return mux
}

// Handler serves the probes, /metrics and, if enabled, profiles below /debug/pprof/. Programs add their own routes.
func (o Ops) Handler() *http.ServeMux {
	mux := o.Probes()
	mux.Handle("GET /metrics", &scrapes{metrics: promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{
		ErrorLog: stdLogger(o.Log), ErrorHandling: promhttp.ContinueOnError, Registry: o.Metrics,
		Timeout: scrapeTimeout,
	})})
	if o.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// NewRegistry returns a registry with the metrics of the process and of Go, and <namespace>_build_info.
func NewRegistry(namespace string) *prometheus.Registry {
	b := CurrentBuild()
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info", Help: "The build of this program; always 1.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "goversion": b.GoVersion},
	})
	gauge.Set(1)
	r := prometheus.NewRegistry()
	r.MustRegister(gauge, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Config is the part of the web configuration that programs use themselves. The exporter-toolkit uses all of it.
type Config struct {
	Users map[string]string `yaml:"basic_auth_users"`
	TLS   struct {
		Cert       string `yaml:"cert_file"`
		Text       string `yaml:"cert"`
		ClientAuth string `yaml:"client_auth_type"`
	} `yaml:"tls_server_config"`
}

// ReadConfig rereads the file each time, as the web server does: adding or removing a user takes effect at once.
func (s WebSettings) ReadConfig() (c Config, err error) {
	if s.ConfigFile == "" {
		return c, nil
	}
	text, err := os.ReadFile(s.ConfigFile)
	if err == nil {
		err = yaml.Unmarshal(text, &c)
	}
	if c.TLS.Cert != "" && !filepath.IsAbs(c.TLS.Cert) {
		c.TLS.Cert = filepath.Join(filepath.Dir(s.ConfigFile), c.TLS.Cert)
	}
	return c, err
}

// Certificate returns the certificate of the server as its file has it now; nil if there is none that can be read.
func (s WebSettings) Certificate() *x509.Certificate {
	c, err := s.ReadConfig()
	if err != nil || c.TLS.Cert == "" {
		return certificate.Parse([]byte(c.TLS.Text))
	}
	return certificate.ReadFile(c.TLS.Cert)
}
