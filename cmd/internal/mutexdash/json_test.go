package mutexdash_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/cli"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

type object = map[string]any

// Scripts read the page's API and the command line alike.
func TestPageAndCommandLineDescribeALockAlike(t *testing.T) {
	etcd := etcdtest.Start(t)
	c := etcd.Client(t)
	locks, err := mutex.New(c, mutex.Options{Defaults: []mutex.Option{mutex.Owner("billing")}})
	proctest.Must(t, err)
	defer locks.Close()
	hold := func(name string, options ...mutex.Option) *mutex.Lock {
		lock, err := locks.Lock(t.Context(), name, options...)
		proctest.Must(t, err)
		return lock
	}
	plain := hold("nightly/run", mutex.Purpose("the report"), mutex.Attribute("team", "core"))
	defer plain.Unlock()
	proctest.Must(t, plain.Alive(t.Context(), "3 of 12"))
	defer hold("pool", mutex.Semaphore(5), mutex.Weight(2)).Unlock()
	defer hold("pool", mutex.Semaphore(5)).Unlock()
	defer hold("ledger", mutex.Exclusive()).Unlock()
	layout := protocol.DefaultLayout()
	for key, value := range map[string]string{
		layout.Field("broken\xff", "uuid"):     "of no form\xfe",
		layout.Field("broken\xff", "alert_at"): "soon",
		layout.Queue("nightly/run") + "1":      `{"uuid":"99999999-2222-4333-8444-555555555555","since":"1553682600"}`,
		layout.Queue("pool") + "1":             `{"owner":"hungry","since":"1553682600","timeout_at":"1553682700"}`,
		layout.History("gone"): `{"lock":"gone","uuid":"gone","token":7,"ended":"forced",` +
			`"ended_at":"1553682600","by":"ann"}`,
	} {
		etcdtest.Put(t, c, key, value)
	}
	p := start(t, etcd.Endpoint())
	answers(t, p.pages+"/api/v1/summary", http.StatusOK, `"waiting":2`, `"malformed":1`)

	for _, words := range []string{"", "REPORT", "run state:held", "n* *ger -pool", "state:malformed", "waiters:>0",
		`label:team=core held:<1h "the report"`, "name:=ledger owner:=billing", "-name:/^p/"} {
		alike(t, "the list of "+words, asked[[]object](t, p, "locks?sort=name&q="+url.QueryEscape(words)),
			printed(t, etcd.Endpoint(), append([]string{"list", "--sort", "name", "--"}, strings.Fields(words)...)...))
	}
	for _, name := range []string{"nightly/run", "pool", "pool#1", "ledger", "broken\xff"} {
		of := "name=" + url.QueryEscape(name)
		if name == "broken\xff" {
			of = "name_b64=YnJva2Vu_w"
		}
		page := []object{asked[object](t, p, "lock?include=backtrace,fields&"+of)}
		alike(t, name, page, printed(t, etcd.Endpoint(), "show", "--raw", name))
	}
	history := asked[struct{ Holds []object }](t, p, "history")
	alike(t, "the history", history.Holds, printed(t, etcd.Endpoint(), "history"))
}

// asked is the data of an answer of the page's API.
func asked[T any](t *testing.T, p program, path string) T {
	t.Helper()
	resp, err := http.Get("http://" + p.pages + "/api/v1/" + path)
	proctest.Must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	var answer struct{ Data T }
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %d %s, %v", path, resp.StatusCode, body, err)
	}
	return answer.Data
}

// printed are the objects that mutexctl prints.
func printed(t *testing.T, endpoint string, args ...string) (list []object) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	proctest.Must(t, err)
	defer out.Close()
	status := cli.Main(t.Context(), cli.Process{
		Args:  append([]string{args[0], "-o", "json", "--etcd.endpoints=" + endpoint}, args[1:]...),
		Stdin: os.Stdin, Stdout: out,
		Stderr: os.Stderr, Now: time.Now, Log: func(string, string) zerolog.Logger { return zerolog.Nop() },
	})
	b, err := os.ReadFile(out.Name())
	if err != nil || status != cli.ExitOK {
		t.Fatalf("mutexctl %v: status %d, %v", args, status, err)
	}
	for line := range bytes.Lines(b) {
		var o object
		proctest.Must(t, json.Unmarshal(line, &o))
		list = append(list, o)
	}
	return list
}

// alike compares what the page's API and mutexctl say about the same lock.
func alike(t *testing.T, what string, page, ctl []object) {
	t.Helper()
	if len(page) != len(ctl) || len(page) == 0 {
		t.Fatalf("%s: the page has %d, mutexctl %d", what, len(page), len(ctl))
	}
	for i := range page {
		if diff := cmp.Diff(timeless(ctl[i]), timeless(page[i])); diff != "" {
			t.Errorf("%s, %v: mutexctl says (-), the page (+)\n%s", what, ctl[i]["name"], diff)
		}
	}
}

// timeless is an object without its address, which only the page knows, and with all seconds alike: time passes between
// the two.
func timeless(o any) any {
	switch o := o.(type) {
	case object:
		delete(o, "url")
		for name, member := range o {
			if _, seconds := member.(float64); seconds && strings.HasSuffix(name, "_in_seconds") {
				member = "some"
			}
			o[name] = timeless(member)
		}
	case []any:
		for i := range o {
			o[i] = timeless(o[i])
		}
	case string:
		return regexp.MustCompile(`\b[0-9]+s\b`).ReplaceAllString(o, "some")
	}
	return o
}
