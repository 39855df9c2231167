package docs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// caller posts to one member. The zero http.Client will do for a member without TLS.
type caller struct {
	endpoint string
	http     http.Client
	token    string
}

// reply is what the gateway answered.
type reply struct {
	status int
	text   string
}

func (c *caller) open(ctx context.Context, path string, body io.Reader, headers ...string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint+path, body)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		req.Header.Set("Authorization", c.token)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	return c.http.Do(req)
}

func (c *caller) post(t *testing.T, path, body string, headers ...string) reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), proctest.Timeout)
	defer cancel()
	resp, err := c.open(ctx, path, strings.NewReader(body), headers...)
	if err != nil {
		t.Errorf("%s %s: %v", path, body, err) // it may be called in a goroutine
		return reply{}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("%s %s: %v", path, body, err)
	}
	return reply{resp.StatusCode, string(text)}
}

// must is post of what etcd has to do.
func (c *caller) must(t *testing.T, path, body string) map[string]any {
	t.Helper()
	r := c.post(t, path, body)
	if r.status != http.StatusOK {
		t.Fatalf("%s %s: %d %s", path, body, r.status, r.text)
	}
	return object(t, r.text)
}

// login gets a token for all further requests.
func (c *caller) login(t *testing.T, name, password string) {
	t.Helper()
	c.token, _ = c.must(t, "/v3/auth/authenticate", toJSON(t, map[string]string{
		"name": name, "password": password,
	}))["token"].(string)
}

// stream is an answer that goes on.
type stream struct {
	status int
	lines  <-chan string
}

func (c *caller) stream(t *testing.T, path string, body io.Reader, headers ...string) stream {
	t.Helper()
	resp, err := c.open(t.Context(), path, body, headers...)
	if err != nil {
		t.Errorf("%s: %v", path, err) // it may be called in a goroutine
		return stream{}
	}
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		defer resp.Body.Close()
		for scanner := bufio.NewScanner(resp.Body); scanner.Scan(); {
			if line := strings.TrimSpace(scanner.Text()); line != "" {
				lines <- line
			}
		}
	}()
	return stream{resp.StatusCode, lines}
}

// next is the next line of the stream.
func (s stream) next(t *testing.T) string {
	t.Helper()
	select {
	case line, more := <-s.lines:
		if !more {
			t.Fatal("the stream has ended")
		}
		return line
	case <-time.After(proctest.Timeout):
		t.Fatalf("the stream is silent for %v", proctest.Timeout)
	}
	return ""
}

func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var o map[string]any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&o); err != nil {
		t.Fatalf("%q is no JSON object: %v", text, err)
	}
	return o
}

func toJSON(t *testing.T, value any) string {
	t.Helper()
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	proctest.Must(t, encoder.Encode(value))
	return strings.TrimSpace(b.String())
}

// file is docs/protocol/transactions.json or kinds.json, which vectors.md and kinds.md there describe.
type file struct {
	Protocol     int
	Prefix       string
	Transactions []transaction
	Verdicts     []json.RawMessage
}

type transaction struct {
	About, Step string
	Input       input
	Body        json.RawMessage
}

type input struct {
	Lock, UUID, Token, Ticket, Lease, Position, Before, Seen string
	Kind, Counted, Taken                                     string

	Limit, Weight, Share int
	Queued               bool
	Older                *waiter
	Fields               fields
	Locks                []struct {
		Lock, UUID string
		Fields     fields
	}
}

// waiter is a ticket, as it is compared and named by a tail.
type waiter struct {
	Ticket         string `json:"ticket"`
	CreateRevision string `json:"create_revision"`
	Lease          string `json:"lease"`
}

// fields are those of a record, in any order: normal does not mind.
type fields map[string]string

func (f fields) record() (all []metadata.Field) {
	for name, value := range f {
		all = append(all, metadata.Field{Name: name, Value: value})
	}
	return all
}

// readFile reads a file with at least so many transactions and verdicts.
func readFile(t *testing.T, name string, transactions, verdicts int) file {
	t.Helper()
	text, err := os.ReadFile("../../docs/protocol/" + name)
	proctest.Must(t, err)
	var f file
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	proctest.Must(t, decoder.Decode(&f))
	if f.Protocol != 1 || f.Prefix != "/mutexes/" {
		t.Fatalf("%s is of protocol %d with prefix %q", name, f.Protocol, f.Prefix)
	}
	if len(f.Transactions) < transactions || len(f.Verdicts) < verdicts {
		t.Fatalf("%s has only %d transactions and %d verdicts", name, len(f.Transactions), len(f.Verdicts))
	}
	return f
}
