package daemon_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// serve runs a server on a free port until the returned function ends it.
func serve(t *testing.T, s *daemon.Server) (address string, stop func() error) {
	t.Helper()
	s.Address = "127.0.0.1:0"
	s.Log = zerolog.Nop()
	address, err := s.Listen()
	proctest.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = func() error {
		cancel()
		return <-ended
	}
	t.Cleanup(cancel)
	return address, stop
}

func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	r, err := c.Get(url)
	proctest.Must(t, err)
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	proctest.Must(t, err)
	return r.StatusCode, string(b)
}

func TestProbesFollowReadinessAndLivenessDoesNot(t *testing.T) {
	ready := &daemon.Readiness{}
	var problem error
	ready.Add("view", func() error { return problem })
	ops := daemon.Ops{Ready: ready, Metrics: daemon.NewRegistry("unlocker"), Log: zerolog.Nop()}
	address, _ := serve(t, &daemon.Server{Handler: ops.Handler()})
	expect := func(when string, code int, text string) {
		t.Helper()
		if gotCode, got := get(t, http.DefaultClient, "http://"+address+"/readyz"); gotCode != code || got != text {
			t.Errorf("%s: %d %q, want %d %q", when, gotCode, got, code, text)
		}
		if code, _ := get(t, http.DefaultClient, "http://"+address+"/livez"); code != http.StatusOK {
			t.Errorf("%s: alive is %d", when, code)
		}
	}
	expect("well", 200, "ready\n")
	problem = errors.New("the first list is not done")
	expect("unwell", 503, "not ready: view: the first list is not done\n")
	for query, want := range map[string]string{
		"?exclude=view":              "200 ready\n",
		"?exclude=view&exclude=view": "200 ready\n",
		"?exclude=etcd":              "400 exclude does not name a condition: there are view\n",
	} {
		if code, text := get(t, http.DefaultClient, "http://"+address+"/readyz"+query); fmt.Sprint(code, " ",
			text) != want {
			t.Errorf("%s: %d %q, want %q", query, code, text, want)
		}
	}
	problem = nil
	ready.Drain()
	expect("at the end", 503, "not ready: shutting down\n")
}

func TestMetricsAreServedAndProfilesOnlyOnRequest(t *testing.T) {
	for _, pprof := range []bool{false, true} {
		registry := daemon.NewRegistry("unlocker")
		ops := daemon.Ops{Ready: &daemon.Readiness{}, Metrics: registry, Pprof: pprof, Log: zerolog.Nop()}
		address, _ := serve(t, &daemon.Server{Handler: ops.Handler()})
		if _, text := get(t, http.DefaultClient, "http://"+address+"/metrics"); !strings.Contains(text,
			"unlocker_build_info{goversion=\"go1") {
			t.Errorf("no build info in the metrics: %.300s", text)
		}
		if code, _ := get(t, http.DefaultClient, "http://"+address+"/debug/pprof/cmdline"); (code == 200) != pprof {
			t.Errorf("profiles wanted: %v, and their answer is %d", pprof, code)
		}
	}
}

// crowd asks for the path on this many connections, several times on each, and reads nothing.
func crowd(t *testing.T, address, path string, connections int) {
	t.Helper()
	for range connections {
		c, err := net.Dial("tcp", address)
		proctest.Must(t, err)
		t.Cleanup(func() { c.Close() })
		request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, address)
		if _, err := io.WriteString(c, strings.Repeat(request, 50)); err != nil {
			t.Fatal(err)
		}
	}
}

// Otherwise the kernel would take dozens of pages for a reader that is not there, and all of them would be made.
func TestUnreadResponseDelaysTheNext(t *testing.T) {
	taken := make(chan int)
	address, _ := serve(t, &daemon.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Error(err)
		}
		n := 0
		for {
			m, err := w.Write(make([]byte, 16<<10))
			if n += m; err != nil || n > 8<<20 {
				break
			}
		}
		taken <- n
	})})
	crowd(t, address, "/", 1)
	if n := <-taken; n > 1<<20 {
		t.Errorf("the kernel buffers %d unread bytes", n)
	}
}

// deaf is a reader that reads nothing: what writes to it waits until it is cut off.
type deaf struct {
	*httptest.ResponseRecorder
	cut chan struct{}
}

func (d *deaf) Write([]byte) (int, error) {
	<-d.cut
	return 0, os.ErrDeadlineExceeded
}

func (d *deaf) SetWriteDeadline(time.Time) error {
	close(d.cut)
	return nil
}

func TestOldestStalledScrapeIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ops := daemon.Ops{Ready: &daemon.Readiness{}, Metrics: prometheus.NewRegistry(), Log: zerolog.Nop()}
		handler := ops.Handler()
		var readers []*deaf
		for range 17 {
			reader := &deaf{httptest.NewRecorder(), make(chan struct{})}
			readers = append(readers, reader)
			go handler.ServeHTTP(reader, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			synctest.Wait()
		}
		for i, reader := range readers {
			select {
			case <-reader.cut:
				if i > 0 {
					t.Errorf("number %d is cut off", i)
				}
			default:
				if close(reader.cut); i == 0 {
					t.Error("the oldest is not cut off")
				}
			}
		}
	})
}

func TestRequestInFlightIsFinishedAndNewOnesAreRefused(t *testing.T) {
	arrived := make(chan struct{})
	release := make(chan struct{})
	address, stop := serve(t, &daemon.Server{Drain: proctest.Timeout,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/new" {
				return
			}
			close(arrived)
			<-release
			fmt.Fprint(w, "finished")
		})})
	answer := make(chan string, 1)
	go func() {
		r, err := http.Get("http://" + address)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		answer <- string(b)
	}()
	<-arrived
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	for {
		r, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Head("http://" + address + "/new")
		if err != nil {
			break // refused: the end has begun
		}
		r.Body.Close()
	}
	close(release)
	if got := <-answer; got != "finished" {
		t.Errorf("the request in flight got %q", got)
	}
	proctest.Must(t, <-ended)
}

func TestRequestThatDoesNotEndIsCutOff(t *testing.T) {
	arrived := make(chan struct{})
	address, stop := serve(t, &daemon.Server{Drain: time.Millisecond,
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(arrived)
			<-r.Context().Done()
		})})
	go http.Get("http://" + address)
	<-arrived
	if err := stop(); err == nil || !strings.Contains(err.Error(), "still in flight") {
		t.Errorf("the server ended with %v", err)
	}
}

func TestWebConfigurationEnablesTLSAndUsers(t *testing.T) {
	ca := proctest.NewCA(t)
	cert, key := ca.Issue(t, "server")
	config := filepath.Join(t.TempDir(), "web.yml")
	// The password is "test".
	users := "basic_auth_users:\n  alice: $2a$04$LYB8BWBw84czLD2u3iqe0urGcCv4NUdah.KQ/N90/CvJnJCOMZwOu\n"
	text := fmt.Sprintf("tls_server_config:\n  cert_file: %s\n  key_file: %s\n%s", cert, key, users)
	proctest.Must(t, os.WriteFile(config, []byte(text), 0o600))
	settings := daemon.WebSettings{Address: ":1", ConfigFile: config}
	proctest.Must(t, settings.Check())
	address, stop := serve(t, &daemon.Server{ConfigFile: config, Drain: proctest.Timeout,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "in")
		})})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()},
		DisableKeepAlives: true}}
	if code, _ := get(t, client, "https://"+address); code != http.StatusUnauthorized {
		t.Errorf("without a password: %d", code)
	}
	if code, text := get(t, client, "https://alice:test@"+address); code != http.StatusOK || text != "in" {
		t.Errorf("with the password: %d %q", code, text)
	}
	renewed, newKey := ca.Issue(t, "renewed")
	proctest.Must(t, errors.Join(os.Rename(renewed, cert), os.Rename(newKey, key)))
	r, err := client.Get("https://" + address)
	proctest.Must(t, err)
	r.Body.Close()
	if name := r.TLS.PeerCertificates[0].Subject.CommonName; name != "renewed" {
		t.Errorf("the next connection has the certificate of %s", name)
	}
	proctest.Must(t, stop())
}

func TestAddressInUseIsAnErrorWithItsFlag(t *testing.T) {
	address, _ := serve(t, &daemon.Server{Handler: http.NotFoundHandler()})
	_, err := (&daemon.Server{Address: address, Flag: "--web.ops-address"}).Listen()
	if want := "--web.ops-address: listen tcp " + address; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestOversizedHeaderIsRefused(t *testing.T) {
	address, _ := serve(t, &daemon.Server{Handler: http.NotFoundHandler()})
	r, err := http.NewRequest(http.MethodGet, "http://"+address, nil)
	proctest.Must(t, err)
	r.Header.Set("X", string(bytes.Repeat([]byte("x"), 64<<10)))
	answer, err := http.DefaultClient.Do(r)
	proctest.Must(t, err)
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of 64 KiB gets %d", answer.StatusCode)
	}
}
