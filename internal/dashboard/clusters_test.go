package dashboard_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// world is several clusters, with the operators' actions in each.
type world struct {
	*dashboard.Dashboard
	scenes map[string]*scene
	done   map[string][]string // locks, by verb and cluster
}

// clusters is a dashboard of prod-eu, prod-us and staging. Each holds nightly/run; billing/settle alerts in prod-us,
// and only-staging is held there.
func clusters(t testing.TB, changes ...func(*setup.Config)) *world {
	t.Helper()
	w := &world{scenes: map[string]*scene{}, done: map[string][]string{}}
	var configs []setup.Config
	for i, name := range []string{"prod-eu", "prod-us", "staging"} {
		s := newScene()
		s.revision += int64(i) * 1000
		s.add(hold{name: "nightly/run", owner: "reports", host: "node-" + name, held: 4 * time.Minute,
			alert: 16 * time.Minute, unlock: time.Hour, purpose: "in " + name})
		w.scenes[name] = s
		config := s.config()
		config.Cluster = setup.Cluster{Name: name, Label: strings.ToUpper(name)}
		operates(&config, func(on protocol.Subject, a protocol.Action) error {
			verb := string(a.Action) + " in " + name
			w.done[verb] = append(w.done[verb], on.Hold.Name)
			return nil
		}, protocol.ActionForceUnlock, protocol.ActionAsk, protocol.ActionExtend)
		config.Access = behindProxy(t)
		config.Access.Permissions = parsed(t, "everyone: [view, audit, backtrace, unlock, ask, extend]")
		for _, change := range changes {
			change(&config)
		}
		configs = append(configs, config)
	}
	w.scenes["prod-us"].add(hold{name: "billing/settle", owner: "billing", host: "billing-1", held: 30 * time.Minute,
		alert: -10 * time.Minute, unlock: 20 * time.Minute, backtrace: rubyTrace})
	w.scenes["staging"].add(hold{name: "only-staging", owner: "qa", host: "qa-1", held: time.Minute,
		alert: 16 * time.Minute, unlock: time.Hour})
	var err error
	if w.Dashboard, err = dashboard.New(configs[0], configs[1:]...); err != nil {
		t.Fatal(err)
	}
	return w
}

// page requests a page as a user.
func (w *world) page(t testing.TB, who, url string, status int) string {
	t.Helper()
	got := get(w, url, "X-Forwarded-User", who)
	if got.Code != status {
		t.Fatalf("GET %s as %s answers %d, want %d: %s", url, who, got.Code, status, words(got.Body.String()))
	}
	return got.Body.String()
}

// leaves makes a cluster unreachable since a while.
func (w *world) leaves(name string, since time.Duration) {
	s := w.scenes[name]
	s.fresh.Heard = s.now.Add(-since)
	s.fresh.Synced = false
	s.away = errAway
}

// links returns the URLs in a page.
func links(page, part string) []string {
	return slices.DeleteFunc(attributes(page, "href"), func(a string) bool { return !strings.Contains(a, part) })
}

func TestDeadlockAdviceNamesTheCluster(t *testing.T) {
	w := clusters(t)
	summary := func(class string) {
		t.Helper()
		got, _ := fetch[struct{ Verdict lockjson.Verdict }](t, as{w, "ann"}, "/api/v1/summary")
		if command := *got.Verdict.Command; got.Verdict.Class != class ||
			command != "mutexctl show --cluster prod-us billing/settle" {
			t.Errorf("%s: %s", got.Verdict.Class, command)
		}
	}
	summary("silent")
	us := w.scenes["prod-us"]
	us.wants("reports", "node-prod-us", "billing/settle")
	us.wants("billing", "billing-1", "nightly/run")
	for _, s := range w.scenes {
		s.change(func() { s.tick(time.Second) })
	}
	summary("deadlock")
	wantWords(t, w.page(t, "ann", "/waiting", http.StatusOK), "These may be stuck, waiting for each other: PROD-US")
}

func TestQuerySelectsClusters(t *testing.T) {
	w := clusters(t)
	for q, want := range map[string]string{
		"cluster:prod-eu": "1 of 5 locks", "cluster:prod-*": "3 of 5 locks", "cluster:prod-eu,staging": "3 of 5 locks",
		"-cluster:staging": "3 of 5 locks", "cluster:=prod-us": "2 of 5 locks",
	} {
		wantWords(t, w.page(t, "ann", "/?q="+q, http.StatusOK), want)
	}
	for _, path := range []string{"/", "/waiting", "/history", "/audit"} {
		wantWords(t, w.page(t, "ann", path+"?q=cluster:prod", http.StatusOK),
			`Ignored cluster:prod: there is no cluster "prod"; there are: prod-eu prod-us staging.`)
	}
	w.page(t, "ann", "/api/v1/locks?q=cluster:prod", http.StatusBadRequest)
	page := w.page(t, "ann", "/?q=cluster:prod-eu&sort=owner", http.StatusOK)
	for _, link := range []string{"/?q=cluster:prod-eu,prod-us&sort=owner", "/?q=cluster:prod-eu,staging&sort=owner",
		"/?sort=owner"} {
		if !slices.Contains(links(page, link), link) {
			t.Errorf("no chip leads to %s", link)
		}
	}
	if n := strings.Count(page, `<a class="cluster `); n != 3 {
		t.Errorf("the list has %d chips for three clusters", n)
	}
	for _, path := range []string{"/waiting", "/history", "/audit"} {
		if page := w.page(t, "ann", path, http.StatusOK); len(links(page, path+"?q=cluster:staging")) == 0 {
			t.Errorf("%s has no chip of staging", path)
		}
	}
}

func TestLockWithoutAClusterIsFoundIfUnique(t *testing.T) {
	w := clusters(t)
	for _, path := range []string{"lock", "unlock", "ask", "lock/backtrace"} {
		got := get(w, "/"+path+"?name=only-staging&hold=x", "X-Forwarded-User", "ann")
		if to := got.Header().Get("Location"); got.Code != http.StatusFound ||
			to != "/c/staging/"+path+"?name=only-staging&hold=x" {
			t.Errorf("/%s answers %d to %s", path, got.Code, to)
		}
	}
	page := w.page(t, "ann", "/lock?name=nightly/run", http.StatusMultipleChoices)
	for name := range w.scenes {
		if len(links(page, "/c/"+name+"/lock?name=nightly/run")) == 0 {
			t.Errorf("%s is not offered", name)
		}
		its := w.page(t, "ann", "/c/"+name+"/lock?name=nightly/run", http.StatusOK)
		for _, link := range append(links(its, "unlock?"), links(its, "/ask?")...) {
			if !strings.HasPrefix(link, "/c/"+name+"/") {
				t.Errorf("the page in %s links to %s", name, link)
			}
		}
	}
	w.page(t, "ann", "/c/nowhere/lock?name=nightly/run", http.StatusNotFound)
}

// as sends a request as a user.
type as struct {
	d   http.Handler
	who string
}

func (a as) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Header.Set("X-Forwarded-User", a.who)
	a.d.ServeHTTP(w, r)
}

// act posts the form of an action for nightly/run in a cluster.
func (w *world) act(t testing.TB, who, cluster, form string) int {
	t.Helper()
	values := w.scenes[cluster].wanted("nightly/run")
	values.Set("more", "30m")
	return post(w, who, "/c/"+cluster+"/"+form+"?name=nightly/run&hold="+uuid("nightly/run"), values).Code
}

// The name, and even the hold's uuid, are the same in all three clusters.
func TestActionsAffectOnlyTheirCluster(t *testing.T) {
	w := clusters(t)
	for i, cluster := range []string{"prod-us", "staging", "prod-eu"} {
		for _, form := range []string{"unlock", "ask", "extend"} {
			if status := w.act(t, "ann", cluster, form); status != http.StatusSeeOther {
				t.Fatalf("%s in %s answers %d", form, cluster, status)
			}
		}
		for _, verb := range []string{"force-unlock", "ask", "extend"} {
			if len(w.done) != 3*(i+1) || fmt.Sprint(w.done[verb+" in "+cluster]) != "[nightly/run]" {
				t.Errorf("after all in %s: %v", cluster, w.done)
			}
		}
	}
	for _, path := range []string{"unlock", "api/v1/lock/force-unlock"} {
		if got := post(w, "ann", "/"+path+"?name=only-staging", w.scenes["staging"].wanted("only-staging")); got.Code !=
			http.StatusConflict {
			t.Errorf("a POST to /%s, which names no cluster, answers %d", path, got.Code)
		}
	}
	if len(w.done) != 9 || len(w.done["force-unlock in staging"]) != 1 {
		t.Errorf("a POST that names no cluster did %v", w.done)
	}
}

func TestUnreachableClusterIsNamedWhileOthersGoOn(t *testing.T) {
	w := clusters(t)
	w.leaves("prod-us", 4*time.Minute)
	page := w.page(t, "ann", "/", http.StatusOK)
	if n := strings.Count(page, " away\" data-rev"); n != 2 {
		t.Errorf("%d rows are of a cluster that is away, want 2", n)
	}
	if n := strings.Count(page, `<span class="cluster band-`); n != strings.Count(page, "<tbody") {
		t.Errorf("%d rows have the colour of their cluster", n)
	}
	colours := map[string]bool{}
	for _, chip := range regexp.MustCompile(`class="cluster [^"]*(band-\w+)`).FindAllStringSubmatch(page, -1) {
		colours[chip[1]] = true
	}
	if len(colours) != 3 || !colours["band-prod"] {
		t.Errorf("three clusters have the colours %v", colours)
	}
	if !strings.Contains(page, `<body class="live"`) {
		t.Error("the page is not live, though two clusters are")
	}
	w.page(t, "ann", "/c/prod-us/unlock?name=nightly/run", http.StatusPreconditionFailed)
	if status := w.act(t, "ann", "prod-us", "unlock"); status != http.StatusPreconditionFailed || len(w.done) > 0 {
		t.Errorf("a force unlock in the cluster that is away answers %d", status)
	}
	if status := w.act(t, "ann", "staging", "unlock"); status != http.StatusSeeOther {
		t.Errorf("a force unlock in another one answers %d", status)
	}
}

// A lock whose alert time is after its cluster's last sign of life is not known to alert.
func TestStatesOfAnUnreachableClusterAreAsLastHeard(t *testing.T) {
	w := clusters(t)
	for _, s := range w.scenes {
		s.add(hold{name: "soon", owner: "x", host: "x-1", held: time.Hour, alert: -time.Minute, unlock: time.Hour})
	}
	w.leaves("staging", 4*time.Minute)
	states := map[string]string{}
	data, _ := fetch[[]lock](t, as{w, "ann"}, "/api/v1/locks?q=name:soon")
	for _, l := range data {
		states[l["cluster"].(string)] = l["state"].(string)
	}
	if states["staging"] != "held" || states["prod-eu"] != "alerting" || states["prod-us"] != "alerting" {
		t.Errorf("the states are %v", states)
	}
	ahead, _ := fetch[[]lock](t, as{w, "ann"}, "/api/v1/locks?q=name:soon+alert:%3E0s")
	if len(ahead) != 1 || ahead[0]["cluster"] != "staging" {
		t.Errorf("alerts are ahead in %v", ahead)
	}
}

func TestPermissionsByCluster(t *testing.T) {
	permissions := parsed(t, `
everyone: [view cluster:prod-*]
users:
  ann: [view, audit cluster:prod-eu, unlock cluster:prod-*, extend cluster:staging owner:reports, ask owner:nobody]
  guest: [view cluster:staging]
  half: [ask]
`)
	w := clusters(t, func(c *setup.Config) { c.Access.Permissions = permissions })
	for _, c := range []struct {
		who, cluster, form string
		status             int
	}{
		{"ann", "prod-eu", "unlock", 303}, {"ann", "prod-us", "unlock", 303}, {"ann", "staging", "unlock", 403},
		{"ann", "staging", "extend", 303}, {"ann", "prod-eu", "extend", 403}, {"ann", "prod-eu", "ask", 403},
		{"bob", "prod-eu", "unlock", 403}, {"bob", "staging", "unlock", 403},
		{"half", "prod-eu", "ask", 303}, {"half", "staging", "ask", 403}, // view alone is missing
	} {
		if got := w.act(t, c.who, c.cluster, c.form); got != c.status {
			t.Errorf("%s: %s in %s answers %d, want %d", c.who, c.form, c.cluster, got, c.status)
		}
	}
	bob := w.page(t, "bob", "/", http.StatusOK)
	wantWords(t, bob, "3 locks")
	if strings.Contains(bob, "only-staging") || strings.Contains(bob, "STAGING") {
		t.Error("bob sees a cluster that is not his")
	}
	w.page(t, "bob", "/c/staging/lock?name=only-staging", http.StatusForbidden)
	wantWords(t, w.page(t, "bob", "/lock?name=only-staging", http.StatusNotFound), "No cluster knows")
	wantWords(t, w.page(t, "guest", "/", http.StatusOK), "5 locks") // as one of everyone, too
	w.page(t, "bob", "/audit", http.StatusForbidden)
	for _, s := range w.scenes {
		s.actions = []protocol.Action{{ID: "1", Actor: "eve", Action: protocol.ActionForceUnlock, Lock: "x",
			At: metadata.Time{Time: s.now}}}
	}
	if page := w.page(t, "ann", "/audit", http.StatusOK); strings.Count(words(page), "eve") != 1 {
		t.Errorf("ann sees the audit of other clusters: %s", words(page))
	}
}

func TestUnlockersOfHiddenClustersAreNotShown(t *testing.T) {
	permissions := parsed(t, `
everyone: [view cluster:prod-*]
users: {ann: [view], chief: [unlock, ask, extend]}
`)
	w := clusters(t, func(c *setup.Config) { c.Access.Permissions = permissions })
	w.scenes["staging"].unlockers[0].ID = "unlocker-of-staging"
	wantWords(t, w.page(t, "bob", "/status", http.StatusOK), "2 clusters.", "PROD-EU prod-eu live,", "1 unlocker")
	for who, knows := range map[string]bool{"ann": true, "bob": false} {
		if page := w.page(t, who, "/api/v1/status", http.StatusOK); strings.Contains(page, "of-staging") != knows {
			t.Errorf("%s sees the unlockers: %s", who, page)
		}
	}
	w.scenes["staging"].unlockers[0].HeldBack = []string{string(staleness.Clock)}
	wantWords(t, w.page(t, "ann", "/", http.StatusOK), "Unlockers in STAGING are holding back removals:")
	w.scenes["prod-us"].unlockers[0].HeldBack = []string{string(staleness.Clock)}
	wantWords(t, w.page(t, "ann", "/", http.StatusOK), "Unlockers in PROD-US are holding back removals:")
	w.scenes["prod-eu"].unlockers = nil
	w.scenes["prod-us"].unlockers = nil
	wantWords(t, w.page(t, "bob", "/", http.StatusOK),
		"No unlocker is running in PROD-EU, or none can write to etcd: no lock is auto-unlocked.",
		"Also: 1 more without working unlockers, 1 silent.")
}

// pageByPage returns the clusters of an API list that is read one item at a time.
func pageByPage[T any](t *testing.T, w *world, path string, first func(T) string) (clusters []string) {
	t.Helper()
	for next := ""; ; {
		data, meta := fetch[T](t, as{w, "ann"}, path+"&limit=1"+next)
		clusters = append(clusters, first(data))
		cursor, more := meta["next"].(string)
		if !more {
			return clusters
		}
		next = "&after=" + cursor
	}
}

// Records of the same moment and token are not lost between two pages of an API, nor are locks of one name.
func TestPagedHistoryOfSeveralClustersResumesCorrectly(t *testing.T) {
	w := clusters(t)
	for name, s := range w.scenes {
		s.endings["e"] = &metadata.Ending{Lock: "nightly/run", UUID: "e", Token: 7, Ended: metadata.EndedForced,
			By: "in-" + name, EndedAt: metadata.Time{Time: s.now.Add(-time.Hour)}}
	}
	type past struct{ Holds []struct{ Cluster string } }
	seen := pageByPage(t, w, "/api/v1/history?", func(p past) string { return p.Holds[0].Cluster })
	if slices.Sort(seen); !slices.Equal(seen, []string{"prod-eu", "prod-us", "staging"}) {
		t.Errorf("page by page these holds are found: %v", seen)
	}
	seen = pageByPage(t, w, "/api/v1/locks?sort=name", func(l []lock) string { return l[0]["cluster"].(string) })
	if !slices.Equal(seen, []string{"prod-us", "prod-eu", "prod-us", "staging", "staging"}) {
		t.Errorf("page by page these locks are found: %v", seen)
	}
}

func TestMergedSnapshotFollowsChanges(t *testing.T) {
	w := clusters(t)
	wantWords(t, w.page(t, "ann", "/", http.StatusOK), "5 locks")
	tag := get(w, "/", "X-Forwarded-User", "ann").Header().Get("ETag")
	answers := func(which string, want int) {
		t.Helper()
		if got := get(w, "/", "X-Forwarded-User", "ann", "If-None-Match", tag); got.Code != want {
			t.Errorf("%s answers %d", which, got.Code)
		}
	}
	answers("the same list", http.StatusNotModified)
	for _, s := range w.scenes {
		s.tick(2 * time.Second)
	}
	us := w.scenes["prod-us"]
	us.add(hold{name: "aaa/new", owner: "new", host: "new-1", held: time.Minute, alert: -time.Second,
		unlock: time.Hour})
	us.locks = slices.DeleteFunc(slices.Clone(us.locks),
		func(r *metadata.Record) bool { return r.Name == "billing/settle" })
	page := w.page(t, "ann", "/", http.StatusOK)
	wantWords(t, page, "5 locks", "aaa/new in PROD-US is 1s late")
	if strings.Contains(page, "billing/settle") {
		t.Error("a lock that was released is still there")
	}
	for q, n := range map[string]string{"": "5 locks", "owner:new": "1 of 5", "cluster:prod-us": "2 of 5"} {
		wantWords(t, w.page(t, "ann", "/?sort=-held&q="+q, http.StatusOK), n)
	}
	answers("a changed list", http.StatusOK)
	for _, s := range w.scenes {
		s.tick(2 * time.Second)
	}
	w.leaves("prod-eu", time.Minute)
	answers("the list after a cluster left", http.StatusOK)
}

func TestActionsAreCountedByCluster(t *testing.T) {
	w := clusters(t)
	w.act(t, "ann", "prod-us", "unlock")
	formatted, err := testutil.CollectAndFormat(w, expfmt.TypeTextPlain, "mutexdash_force_unlocks_total")
	if err != nil {
		t.Fatal(err)
	}
	text := string(formatted)
	for _, want := range []string{`mutexdash_force_unlocks_total{cluster="prod-us",result="success"} 1`,
		`mutexdash_force_unlocks_total{cluster="prod-eu",result="success"} 0`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if log := w.scenes["prod-us"].log.String(); !strings.Contains(log, `"cluster":"prod-us"`) ||
		!strings.Contains(log, `"audit":"force-unlock"`) {
		t.Errorf("the log says %s", log)
	}
}

func TestSingleNamedClusterKeepsItsURLs(t *testing.T) {
	d := busy().dashboard(t, func(c *setup.Config) { c.Cluster = setup.Cluster{Name: "prod-eu"} })
	page := ok(t, d, "/")
	if stray := links(page, "/c/"); len(stray) > 0 {
		t.Errorf("the list links to %v", stray)
	}
	got := get(d, "/c/prod-eu/lock?name=drm/rotate-keys")
	if to := got.Header().Get("Location"); got.Code != http.StatusFound || to != "/lock?name=drm/rotate-keys" {
		t.Errorf("a bookmark of the time of several clusters answers %d to %q", got.Code, to)
	}
	if got := get(d, "/c/prod-eu//evil.example"); got.Code != http.StatusNotFound {
		t.Errorf("another address answers %d", got.Code)
	}
}

func TestPermissionsNameClustersOnlyWhereThereAreAny(t *testing.T) {
	config := newScene().config()
	config.Access = behindProxy(t)
	config.Access.Permissions = parsed(t, "everyone: [view cluster:prod-*]")
	if _, err := dashboard.New(config); err == nil || !strings.Contains(err.Error(), "the permissions name clusters") {
		t.Errorf("permissions of clusters without any: %v", err)
	}
}
