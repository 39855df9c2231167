package dashboard_test

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestHolderWithAWrongClockHasABadge(t *testing.T) {
	s := busy()
	s.add(hold{name: "behind", owner: "o", held: 6 * time.Minute, alert: -5 * time.Minute, unlock: -time.Minute})
	s.add(hold{name: "tomorrow", owner: "o", held: -24 * time.Hour, alert: 25 * time.Hour, unlock: 26 * time.Hour})
	for _, r := range s.locks {
		r.Seen = metadata.Seen{First: time.Hour, Changed: time.Hour, Arrived: time.Hour}
		if r.Name == "drm/rotate-keys" {
			r.LockedAt = s.now
		}
	}
	d := s.dashboard(t)
	page := ok(t, d, "/")
	wantWords(t, page, "behind o clock 6m behind", "tomorrow o clock 1d ahead", "drm/rotate-keys drm drm-9:17 held 0s")
	wantWords(t, ok(t, d, "/lock?name=behind"), "clock 6m behind",
		"clock skew -6m: the holder's clock is behind this dashboard's.", "Auto-unlock in 5m.")
	wantWords(t, ok(t, d, "/lock?name=tomorrow"), "clock 1d ahead",
		"clock skew +1d: the holder's clock is ahead of this dashboard's.")
}

func TestBacktracesOfEveryLanguageShowOwnCodeFirst(t *testing.T) {
	s := newScene()
	d := s.dashboard(t)
	for language, c := range map[string]struct{ trace, first, folded string }{
		"Ruby": {"/usr/local/bundle/gems/etcd-1/lib/lock.rb:3:in `synchronize'\n" + rubyTrace,
			"app/jobs/invoice_run.rb:118 in perform", "show 3 runtime frames"},
		"Python": {`File "/usr/lib/python3.12/contextlib.py", line 137, in __enter__
File "/srv/app/jobs/invoice.py", line 41, in perform
File "/srv/venv/lib/python3.12/site-packages/celery/app/trace.py", line 453, in trace_task
File "/srv/venv/lib/python3.12/site-packages/celery/app/trace.py", line 736, in __protected_call__
File "<frozen runpy>", line 88, in _run_code`, "/srv/app/jobs/invoice.py:41 in perform", "show 3 runtime frames"},
		"Go": {`/src/billing/jobs/runner.go:212 in shop.example/billing/jobs.(*Runner).Invoices
github.com/acme/cron@v1.2.0/cron.go:9 in github.com/acme/cron.(*Cron).run
runtime/proc.go:285 in runtime.main
runtime/asm_amd64.s:1693 in runtime.goexit`, "/src/billing/jobs/runner.go:212 in shop.example/billing/jobs.(*Runner).Invoices", "show 3 runtime frames"},
		"Go's own format": {`github.com/clustermutex/unlocker/pkg/mutex.(*Client).Lock /root/go/pkg/mod/github.com/clustermutex/unlocker/pkg/mutex/lock.go:77
main.main /src/billing/main.go:12`, "/src/billing/main.go:12 in main.main", ""},
		"Python's own format": {`  File "/srv/app/sync.py", line 212, in import_all
    for item in supplier.items():
                ^^^^^^^^^^^^^^^^
  File "/usr/lib/python3.12/site-packages/celery/app/trace.py", line 477, in trace_task
    R = retval = fun(*args, **kwargs)`, "/srv/app/sync.py:212 in import_all for item in supplier.items():", "2 frames"},
		"Go's stack": {`goroutine 7 [running]:
runtime/debug.Stack()
	/usr/local/go/src/runtime/debug/stack.go:26 +0x5e
example.com/search/reindex.(*Indexer).Run(0xc000012345, {0x0, 0x1})
	/src/search/reindex/indexer.go:91 +0x1d
main.main()
	/src/search/main.go:34`, "/src/search/reindex/indexer.go:91 in example.com/search/reindex.(*Indexer).Run", "4 frames"},
		"Java": {`at com.shop.lock.Mutex.acquire(Mutex.java:80)
at java.base/java.lang.Thread.run(Thread.java:1583)`, "Mutex.java:80 in com.shop.lock.Mutex.acquire", ""},
		"JavaScript": {`at acquire (/srv/app/node_modules/mutex/index.js:12:7)
at async run (file:///srv/app/jobs/invoice.js:31:5)
at node:internal/process/task_queues:95:5`, "file:///srv/app/jobs/invoice.js:31 in async run", ""},
		"something else": {"lib/app/run.ex:42: App.Run.perform/1", "lib/app/run.ex:42 in App.Run.perform/1", ""},
	} {
		t.Run(language, func(t *testing.T) {
			s.add(hold{name: "a", held: time.Minute, alert: time.Hour, unlock: time.Hour, backtrace: c.trace})
			page := ok(t, d, "/lock?name=a")
			wantWords(t, page, c.first, c.folded)
			start := strings.Index(page, `<p class="first">`)
			if got := words(page[start : start+strings.Index(page[start:], "</p>")]); got != c.first {
				t.Errorf("the first own frame is %q, want %q", got, c.first)
			}
		})
	}
}

func TestImpossibleLockNamesAreRefused(t *testing.T) {
	d := busy().dashboard(t)
	if w := get(d, "/api/v1/lock?name=billing/other"); w.Code != http.StatusNotFound {
		t.Errorf("for a lock that is free the API answers %d", w.Code)
	}
	for _, impossible := range []string{"?name=" + strings.Repeat("x", 257), "?name=%01", "?name=a%0Ab", "?name=%FF",
		"", "?name_b64=%21"} {
		if w := get(d, "/lock"+impossible); w.Code != http.StatusBadRequest {
			t.Errorf("for %.15q it answers %d", impossible, w.Code)
		}
	}
}

func TestLongNameIsNotReportedAsForeign(t *testing.T) {
	s := newScene()
	for _, name := range []string{strings.Repeat("long/", 300), "caf\u00e9/menu", strings.Repeat("long/", 300) +
		"\u0435"} {
		s.add(hold{name: name, owner: "o", held: time.Hour, alert: time.Hour, unlock: 2 * time.Hour})
		s.wait(name, "w", time.Minute)
	}
	d := s.dashboard(t)
	for path, want := range map[string]int{"/": 1, "/waiting": 1, "/lock?name=" + strings.Repeat("long/", 300): 0,
		"/lock?name=caf%C3%A9/menu": 1, "/lock?name=" + strings.Repeat("long/", 300) + "%D0%B5": 1} {
		if n := strings.Count(ok(t, d, path), ">non-ASCII<"); n != want {
			t.Errorf("%.40s reports %d names that are not ASCII, want %d", path, n, want)
		}
	}
}

func TestFormThatCannotBeShownLeadsBack(t *testing.T) {
	silent := lived(t)
	silent.away = errAway // and the silence is too short to be noticed
	stale := lived(t)
	stale.fresh.HeardAt = stale.now.Add(-4 * time.Minute)
	unknown := newScene()
	unknown.fresh = protocol.Freshness{Cause: "connection refused"}
	for name, c := range map[string]struct {
		s            *scene
		who          string
		status       int
		refresh, say string
	}{
		"etcd is silent": {silent, "chief", http.StatusServiceUnavailable, "5", "The form cannot be shown: timeout. " +
			"Nothing was done. This page retries every 5 seconds. From a host that reaches etcd: mutexctl "},
		"the data is stale": {stale, "chief", http.StatusPreconditionFailed, "5",
			"From a host that reaches etcd: mutexctl "},
		"nothing is known":     {unknown, "chief", http.StatusServiceUnavailable, "5", "every 5 seconds."},
		"somebody who may not": {lived(t), "viewer", http.StatusForbidden, "", "needs the permission"},
	} {
		d := operators(t, c.s, new([]protocol.Action), new(error))
		for _, form := range []string{"unlock", "ask", "extend", "acknowledge"} {
			w := get(d, "/"+form+"?name="+stuck+"&hold="+uuid(stuck), "X-Forwarded-User", c.who)
			if w.Code != c.status || w.Header().Get("Refresh") != c.refresh {
				t.Errorf("%s: %s answers %d, and looks again after %q s", name, form, w.Code, w.Header().Get("Refresh"))
			}
			wantWords(t, w.Body.String(), c.say)
			back := "/lock?name=" + stuck + "&hold=" + uuid(stuck)
			if !slices.Contains(attributes(w.Body.String(), "href"), back) {
				t.Errorf("%s: %s has no link back to the lock", name, form)
			}
		}
	}
}

// States and endings have a badge, an icon and a term that finds them.
func TestEveryStateAndEndingIsStyledExplainedAndSearchable(t *testing.T) {
	d := busy().dashboard(t)
	style := ok(t, d, regexp.MustCompile(`/[^" ]*app[^" ]*\.css[^" ]*`).FindString(ok(t, d, "/")))
	help := ok(t, d, "/help")
	drawn := func(word, icon string) {
		t.Helper()
		if !strings.Contains(style, ".badge."+word) {
			t.Errorf("the badge of %s has no colour", word)
		}
		if !strings.Contains(help, `<symbol id="i-`+icon+`"`) {
			t.Errorf("%s has no icon", word)
		}
	}
	found := func(term string) {
		t.Helper()
		if page := ok(t, d, "/history?q="+term); strings.Contains(page, "Ignored") {
			t.Errorf("nothing is found by %s", term)
		}
	}
	for _, s := range metadata.States() {
		drawn(string(s.State), string(s.State))
		found("state:" + string(s.State))
		wantWords(t, help, string(s.State)+" "+s.Meaning)
		if w := get(d, "/icon.svg?state="+string(s.State)+""); w.Code != http.StatusOK {
			t.Errorf("the tab of %s has no icon: %d", s.State, w.Code)
		}
	}
	for _, e := range metadata.Endings() {
		if e.Cause != metadata.EndingYielded { // which looks like one that was released
			drawn(e.Word, app.EndedIcon(e.Word))
		}
		found(locks.FieldTerm("ended", e.Word))
		if _, ends, _ := strings.Cut(help, "<code>ended:"); !strings.Contains(ends, e.Word) {
			t.Errorf("the help does not name %s", e.Word)
		}
	}
}
