package dashboard_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// served is a dashboard behind a real server with the programs' timeouts. Socket buffers are small, so that an unread
// response stays in the server.
func served(t *testing.T, d *dashboard.Dashboard) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(d)
	server.Config.ReadHeaderTimeout = 5 * time.Second
	server.Config.ReadTimeout = 30 * time.Second
	server.Config.WriteTimeout = time.Minute
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if err := c.(*net.TCPConn).SetWriteBuffer(16 << 10); err != nil {
			t.Error(err)
		}
		return ctx
	}
	server.Start()
	t.Cleanup(server.Close)
	return server
}

// local is the access of a proxy on this machine.
func local(t *testing.T) func(*app.Config) {
	return func(c *app.Config) {
		c.Access = behindProxy(t)
		c.Access.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	}
}

// sockets sends the same bytes on this many connections and reads nothing.
func sockets(t *testing.T, server *httptest.Server, n int, bytes string) []net.Conn {
	t.Helper()
	list := make([]net.Conn, n)
	for i := range list {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		proctest.Must(t, err)
		t.Cleanup(func() { c.Close() })
		proctest.Must(t, c.(*net.TCPConn).SetReadBuffer(4<<10))
		if _, err := io.WriteString(c, bytes); err != nil {
			t.Fatal(err)
		}
		list[i] = c
	}
	return list
}

// request is a request by hand; headers come in lines.
func byHand(line, body string, headers ...string) string {
	return line + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + strings.Join(append(headers, "", ""), "\r\n") + body
}

func TestIdleSocketsDoNotBlockThePage(t *testing.T) {
	t.Parallel()
	s := crowd(60)
	d, _ := operated(t, s, local(t))
	form := []string{"Content-Type: application/x-www-form-urlencoded", "Content-Length: 999"}
	large := byHand("GET /api/v1/locks?limit=50", "", "X-Forwarded-User: viewer")
	for name, bytes := range map[string]string{
		"a form of somebody who may": byHand("POST /unlock?name=x", "reason=",
			append(form, "X-Forwarded-User: chief")...),
		"JSON without a name": byHand("POST /api/v1/lock/force-unlock", "{",
			"Content-Type: application/json", "Content-Length: 999"),
		"a body where none belongs": byHand("GET /help", "x", "Content-Length: 999"),
		"a body in pieces": byHand("GET /api/v1/locks?limit=1", "5\r\nx", "Transfer-Encoding: chunked",
			"X-Forwarded-User: viewer"),
		"large answers that nobody reads": large + large + large,
	} {
		t.Run(name, func(t *testing.T) {
			server := served(t, d)
			sockets(t, server, 300, bytes)
			page := func() int {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/", nil)
				proctest.Must(t, err)
				r.Header.Set("X-Forwarded-User", "viewer")
				resp, err := http.DefaultClient.Do(r)
				proctest.Must(t, err)
				resp.Body.Close()
				return resp.StatusCode
			}
			// 300 permitted requests at once exceed the limit: the page is busy until they are answered, whether or not
			// the responses are read, and then it is free.
			end := time.Now().Add(proctest.Timeout)
			for answered := 0; answered < 5; {
				switch code := page(); {
				case code == http.StatusOK:
					answered++
				case code != http.StatusServiceUnavailable || !strings.HasSuffix(name, "that nobody reads"):
					t.Fatalf("after %d answers the page answers %d", answered, code)
				case time.Now().After(end):
					t.Fatal("the page stays busy")
				default:
					answered = 0
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
	}
}

func TestForbiddenRequestsAreAnsweredBeforeTheBodyIsRead(t *testing.T) {
	t.Parallel()
	s := busy()
	d, _ := operated(t, s, local(t))
	server := served(t, d)
	form := []string{"Content-Type: application/x-www-form-urlencoded", "Content-Length: 999"}
	for name, c := range map[string]struct {
		bytes  string
		status int
	}{
		"without a name": {byHand("POST /unlock?name=x", "reason=", form...), http.StatusUnauthorized},
		"without the permission": {byHand("POST /unlock?name=x", "reason=",
			append(form, "X-Forwarded-User: viewer")...), http.StatusForbidden},
		"as something else": {byHand("POST /unlock?name=x", "{", "Content-Type: text/plain", "Content-Length: 999",
			"X-Forwarded-User: chief"), http.StatusUnsupportedMediaType},
		"announced as too large": {byHand("POST /unlock?name=x", "", form[0], "Content-Length: 99999",
			"X-Forwarded-User: chief"), http.StatusRequestEntityTooLarge},
		"too large in pieces": {byHand("POST /unlock?name=x", "10400\r\n"+strings.Repeat("x", 65<<10)+"\r\n0\r\n\r\n",
			form[0], "Transfer-Encoding: chunked", "X-Forwarded-User: chief"), http.StatusRequestEntityTooLarge},
		"who may, but is silent": {byHand("POST /unlock?name=x", "reason=", append(form, "X-Forwarded-User: chief")...),
			http.StatusRequestTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := sockets(t, server, 1, c.bytes)[0]
			// A server that waits for the rest of the body does so for half a minute.
			proctest.Must(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			proctest.Must(t, err)
			if resp.StatusCode != c.status || !resp.Close {
				t.Errorf("the answer is %d, want %d, and the connection ends is %t", resp.StatusCode, c.status,
					resp.Close)
			}
		})
	}
}

func TestRefusedAttemptsDoNotFillTheLog(t *testing.T) {
	s := busy()
	d, _ := operated(t, s)
	for range 40 {
		post(d, "", unlockLink(s, stuck), s.wanted(stuck))
		post(d, "viewer", unlockLink(s, stuck), s.wanted(stuck))
		post(d, "", "/api/v1/lock/force-unlock", nil)
		get(d, "/", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors")
	}
	if lines := strings.Count(s.log.String(), "\n"); lines > 30 {
		t.Errorf("160 refused requests wrote %d lines", lines)
	}
	for _, who := range []string{`"actor":""`, `"actor":"viewer"`} {
		if !strings.Contains(s.log.String(), who) {
			t.Errorf("the log does not mention %s", who)
		}
	}
	wantForced(t, d, 0, 0, 120, 0)
	s.log.Reset()
	s.now = s.now.Add(time.Minute)
	post(d, "", unlockLink(s, stuck), s.wanted(stuck))
	for _, part := range []string{`"result":"denied"`, `"left_out":`} {
		if !strings.Contains(s.log.String(), part) {
			t.Errorf("a minute later the log has no %s: %s", part, &s.log)
		}
	}
}
