package docs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
)

// What docs/gateway.md shows is sent to etcd, in the order of the page, and the answers are compared with the page.
func TestGatewayDocumentation(t *testing.T) {
	t.Parallel()
	callers := servers(t)
	names := map[string]string{}
	found := 0
	for _, block := range blocks(t, filepath.Join(top, "docs", "gateway.md")) {
		if block.language != "http" {
			continue
		}
		found++
		t.Run(fmt.Sprintf("block %d %s", found, block.server), func(t *testing.T) {
			c := callers[block.server]
			if c == nil {
				t.Fatalf("nothing serves %q", block.server)
			}
			r := &run{t: t, caller: c, names: names}
			for paragraph := range strings.SplitSeq(strings.TrimSpace(block.text), "\n\n") {
				r.paragraph(strings.Split(paragraph, "\n"))
			}
			if r.answers == 0 || r.waiting != "" {
				t.Errorf("%d answers were compared, and %q was not", r.answers, r.waiting)
			}
		})
	}
	if found < 10 {
		t.Errorf("only %d blocks of HTTP were found", found)
	}
}

// servers are those that the blocks are sent to, by the word after "http".
func servers(t *testing.T) map[string]*caller {
	t.Helper()
	users := etcdtest.Start(t, etcdtest.Gateway(), etcdtest.Auth())
	users.AddUser(t, "billing", "secret", "/mutexes/", etcdtest.ReadWrite)
	certificates := etcdtest.Start(t, etcdtest.Gateway(), etcdtest.ClientCerts(), etcdtest.Auth())
	return map[string]*caller{
		"":            {endpoint: etcdtest.Start(t, etcdtest.Gateway()).Endpoint()},
		"users":       {endpoint: users.Endpoint()},
		"off":         {endpoint: etcdtest.Start(t).Endpoint()},
		"certificate": withCertificate(t, certificates, "billing"),
	}
}

// withCertificate calls with a client certificate of this common name.
func withCertificate(t *testing.T, s *etcdtest.Server, commonName string) *caller {
	t.Helper()
	return &caller{
		endpoint: s.Endpoint(),
		http:     http.Client{Transport: &http.Transport{TLSClientConfig: s.ClientTLS(t, commonName)}},
	}
}

// run sends the requests of a block.
type run struct {
	t      *testing.T
	caller *caller
	names  map[string]string // leases and tokens on the page, and those of this etcd

	waiting string // the request whose answer comes next on the page
	got     reply
	stream  stream
	answers int
}

func (r *run) paragraph(lines []string) {
	r.t.Helper()
	first, rest := lines[0], lines[1:]
	switch method, path, _ := strings.Cut(first, " "); {
	case method == http.MethodPost:
		r.request(path, rest)
	case first == "and then the watch says":
		r.same(r.lines(rest), strings.Join(rest, "\n"))
	default:
		r.answer(first, rest)
	}
}

func (r *run) request(path string, rest []string) {
	r.t.Helper()
	var headers []string
	for len(rest) > 0 && !strings.HasPrefix(rest[0], "{") {
		headers = append(headers, r.ours(rest[0]))
		rest = rest[1:]
	}
	r.waiting = path
	body := r.ours(strings.Join(rest, "\n"))
	if path == "/v3/watch" {
		r.stream = r.caller.stream(r.t, path, strings.NewReader(body), headers...)
		return
	}
	r.got = r.caller.post(r.t, path, body, headers...)
}

// ours is the text with the leases and tokens of this etcd.
func (r *run) ours(text string) string {
	for page, real := range r.names {
		text = strings.ReplaceAll(text, page, real)
	}
	return text
}

func (r *run) answer(status string, rest []string) {
	r.t.Helper()
	got, gotStatus := r.got.text, r.got.status
	if r.waiting == "/v3/watch" {
		gotStatus = r.stream.status
		got = r.lines(rest)
	}
	if strconv.Itoa(gotStatus) != status {
		r.t.Errorf("%s answers with status %d, the page says %s: %s", r.waiting, gotStatus, status, got)
	}
	r.same(got, strings.Join(rest, "\n"))
	r.waiting = ""
}

// lines reads as many objects from the stream as the page has.
func (r *run) lines(page []string) string {
	r.t.Helper()
	var got []string
	for range values(r.t, strings.Join(page, "\n")) {
		got = append(got, r.stream.next(r.t))
	}
	return strings.Join(got, "\n")
}

// same compares an answer with the page.
func (r *run) same(got, page string) {
	r.t.Helper()
	r.answers++
	if !strings.HasPrefix(page, "{") {
		if strings.TrimSpace(got) != page {
			r.t.Errorf("the answer is %q, the page says %q", got, page)
		}
		return
	}
	want, have := values(r.t, page), values(r.t, got)
	for i := range min(len(want), len(have)) {
		have[i] = r.likePage(have[i], want[i])
	}
	if diff := gocmp.Diff(want, have); diff != "" {
		r.t.Errorf("the answer differs (-page +etcd):\n%s", diff)
	}
}

// likePage is the answer with the page's names for what differs from one etcd to the next.
func (r *run) likePage(got, page any) any {
	switch page := page.(type) {
	case map[string]any:
		got, isMap := got.(map[string]any)
		for name, value := range got {
			got[name] = r.named(name, value, page[name])
		}
		if isMap {
			return got
		}
	case []any:
		if got, isList := got.([]any); isList {
			for i := range min(len(got), len(page)) {
				got[i] = r.likePage(got[i], page[i])
			}
		}
	}
	return got
}

func (r *run) named(name string, got, page any) any {
	text, isText := got.(string)
	onPage, _ := page.(string)
	switch {
	case isText && onPage == "…":
		return page
	case isText && onPage != "" && (name == "ID" || name == "token"):
		if r.names[onPage] == "" {
			r.names[onPage] = text
		}
		if r.names[onPage] == text {
			return page
		}
		return got
	}
	return r.likePage(got, page)
}

// values are JSON values, one after the other.
func values(t *testing.T, text string) (all []any) {
	t.Helper()
	for decoder := json.NewDecoder(strings.NewReader(text)); ; {
		var v any
		decoder.UseNumber()
		err := decoder.Decode(&v)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%q is no JSON: %v", text, err)
		}
		all = append(all, v)
	}
}
