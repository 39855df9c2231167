package dashboard_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// sayings collects the texts of pages and the API in many situations, for a reviewed golden file.
type sayings struct {
	*testing.T
	text   strings.Builder
	before map[string][]string // answers of the API, by path
}

// TestWordsLookLikeTheirGoldens: see testdata/golden/sayings-*.txt.
func TestWordsLookLikeTheirGoldens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // no read behind a page is late
		said := &sayings{T: t, before: map[string][]string{}}
		for _, file := range []struct {
			name string
			say  func(*sayings)
		}{{"locks", ofLocks}, {"ends", ofEnds}, {"lists", ofLists}, {"headlines", ofHeadlines}, {"others", ofOthers}} {
			said.text.Reset()
			file.say(said)
			proctest.Golden(t, "testdata/golden/sayings-"+file.name+".txt", *update, said.text.String())
		}
	})
}

// in requests a page as a user with all permissions, and records its text.
func (s *sayings) in(situation string, of *scene, path string, changes ...func(*app.Config)) {
	s.Helper()
	changes = append([]func(*app.Config){marking(s, of, new([]protocol.Action))}, changes...)
	d, _ := operated(s, of, changes...)
	s.page(situation, d, path)
}

// page is for a page of which several parts matter.
func (s *sayings) page(situation string, d http.Handler, path string) {
	s.Helper()
	w := get(d, path, "X-Forwarded-User", "chief")
	said := w.Body.String()
	switch kind := w.Header().Get("Content-Type"); {
	case strings.HasPrefix(kind, "text/html"):
		if strings.Contains(said, ">live,<") && !regexp.MustCompile(`data-follows|id="live"`).MatchString(said) {
			s.Errorf("%s is said to be live, and nothing keeps it current", path)
		}
		if !strings.Contains(path, "window=") { // the pages of locks in golden files have their timeline
			chart := regexp.MustCompile(`(?s)<section aria-labelledby="h-chart">.*?</section>`)
			said = chart.ReplaceAllString(said, "")
		}
		said = paragraphs(regexp.MustCompile(`(?s)<div id="alerts">.*</main>`).FindString(said))
	case strings.HasSuffix(kind, "json"):
		said = s.unlike(path, indented(s, said))
	}
	fmt.Fprintf(&s.text, "# %s: %s %d\n\n%s\n", situation, path, w.Code, said)
}

// head is for the head of a lock's page, which says all that matters.
func (s *sayings) head(situation string, of *scene, lock string, changes ...func(*app.Config)) {
	s.Helper()
	s.part(`<div id="alerts">.*?(<section|<div class="halves"|</main>)`, situation, of, lock, changes...)
}

// part is for a part of a lock's page.
func (s *sayings) part(which, situation string, of *scene, lock string, changes ...func(*app.Config)) {
	s.Helper()
	page := get(of.dashboard(s, changes...), "/lock?name="+lock).Body.String()
	part := regexp.MustCompile("(?s)" + which).FindString(page)
	fmt.Fprintf(&s.text, "# %s: %s\n\n%s\n", situation, lock, paragraphs(part))
}

// paragraphs returns the text of a part of a page, a line per paragraph and row, without what all pages share.
func paragraphs(part string) string {
	part = regexp.MustCompile(`(?s)<select.*?</select>|<section aria-labelledby="h-look">.*`).ReplaceAllString(part, "")
	marked := regexp.MustCompile(`</(p|h\d|li|tr|summary|dd|option|label|caption|ul)>`).ReplaceAllString(part, "¶$0")
	var lines []string
	for line := range strings.SplitSeq(words(marked), "¶") {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// indented returns an API response without its unknown members.
func indented(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(text), "", "  "); err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^.*: null,?\n`).ReplaceAllString(b.String(), "") + "\n"
}

// unlike returns an API response as a diff from the most similar earlier one for the same path.
func (s *sayings) unlike(path, answer string) string {
	path, _, _ = strings.Cut(path, "?")
	shortest := answer
	for i, other := range s.before[path] {
		differ := fmt.Sprintf("like answer %d of %s\n%s", i+1, path, apart(answer, other))
		if strings.Count(differ, "\n") < strings.Count(shortest, "\n") {
			shortest = differ
		}
	}
	s.before[path] = append(s.before[path], answer)
	return shortest
}

func ofLocks(say *sayings) {
	s := busy()
	s.add(hold{name: "late", owner: "o", held: time.Hour, alert: -time.Hour, unlock: -34 * time.Second})
	s.add(hold{name: "ahead", owner: "o", held: -7 * time.Second, alert: time.Hour, unlock: 2 * time.Hour})
	s.put("headless", metadata.Field{Name: "owner", Value: "nobody"})
	s.put("bare", metadata.Field{Name: "uuid", Value: uuid("bare")})
	policy := publishing(func(p *staleness.Policy) { p.DefaultAutoUnlockAfter = 2 * time.Hour })
	for _, name := range []string{"drm/rotate-keys", "late", "legacy/cron", "ahead"} {
		say.head("as it is", s, name)
	}
	say.in("without a uuid", s, "/lock?name=headless")
	say.in("without times, under a policy", s, "/lock?name=bare", policy)
	for _, name := range []string{"late", "drm/rotate-keys", stuck} {
		say.head("excluded", s, name, publishing(func(*staleness.Policy) {}, "*"))
	}

	s = settling()
	for i := range 7 {
		began := s.now.Add(-time.Duration(i+2) * time.Hour)
		s.endings[fmt.Sprint(i)] = &metadata.Ending{Name: "orders/settle", UUID: fmt.Sprint(i),
			Cause: metadata.EndingForced, LockedAt: metadata.Time{Time: began},
			EndedAt: metadata.Time{Time: began.Add(6 * time.Minute)}}
	}
	s.queues["orders/settle"] = s.queues["orders/settle"][:1]
	say.head("as usual, and one waits", s, "orders/settle")
	clear(s.queues)
	say.head("nobody waits", s, "orders/settle")
	s = settling()
	s.add(hold{name: "ledger", owner: "books", host: "books-0", held: time.Hour, alert: time.Hour,
		unlock: 2 * time.Hour})
	s.wants("orders", "orders-7c9d8f6b5-x2k7p", "ledger")
	say.head("its process waits for another lock", s, "orders/settle")

	s = newScene()
	beating(s, "search/reindex", 3*time.Second)
	say.in("a healthy heartbeat", s, "/lock?name=search/reindex")
	s.add(hold{name: "just/taken", owner: "o", held: time.Second, alert: 59 * time.Second, unlock: 59 * time.Second})
	say.head("just taken", s, "just/taken")
	s.add(hold{name: "pod", owner: "billing", held: time.Minute, alert: time.Hour, unlock: 2 * time.Hour,
		attributes: map[string]string{"pod_namespace": "billing", "pod_name": "run-0", "container": "worker",
			"boot_id": "2f0c1a52"}})
	say.part(`<dl class="facts">.*?</dl>`, "of a container", s, "pod")
	var trace strings.Builder
	for i := range 10 {
		fmt.Fprintf(&trace, "app/jobs/settle.rb:%d:in 'step%d'\n", 100+i, i)
	}
	s.add(hold{name: "deep", held: time.Minute, alert: time.Hour, unlock: time.Hour, backtrace: trace.String()})
	s.add(hold{name: "nine", held: time.Minute, alert: time.Hour, unlock: time.Hour,
		backtrace: strings.Join(strings.SplitAfter(trace.String(), "\n")[:9], "")})
	for _, name := range []string{"deep", "nine"} {
		say.part(`<h2 id="h-trace">.*?</section>`, "a backtrace", s, name)
	}
	s.add(hold{name: "long", held: time.Minute, alert: time.Hour, unlock: time.Hour,
		backtrace: strings.Repeat("x\n", 300)})
	if page := words(ok(say, s.dashboard(say), "/lock?name=long")); !strings.Contains(page,
		"256 frames, 600 bytes; only the first are shown.") {
		say.Error("a long backtrace is not cut")
	}
	say.in("a long queue", settling(), "/lock?name=orders/settle&window=1h")

	away := gone()
	for _, name := range []string{"alert/passed", "unlock/passed"} {
		say.head("while etcd is silent", away, name)
	}
	say.in("while etcd is silent, not known", away, "/lock?name=other")
	away.away = nil
	say.head("while only the watch is broken", away, "alert/passed")
	s = busy()
	s.away = errAway
	for _, path := range []string{"/lock?name=other", "/api/v1/lock?name=" + stuck,
		"/api/v1/lock?name=other"} {
		say.in("that cannot be read", s, path)
	}

	s = neglected()
	say.in("unclaimed", s, "/lock?name="+settle)
	s.away = errAway
	say.head("unclaimed, and etcd is away", s, settle)
	s.away, s.unclaimed = nil, nil
	say.head("just free", s, settle)

	ofShares(say)
	ofDeaths(say)
}

func ofShares(say *sayings) {
	s := pool()
	say.head("several read it", s, "catalogue")
	say.head("exclusive", s, "ledger")
	say.in("several hold it", s, "/api/v1/lock?name=pool")
	s.add(hold{name: "pool#5", owner: "new", host: "n", held: time.Minute, alert: time.Hour, unlock: time.Hour,
		attributes: map[string]string{"kind": "semaphore", "limit": "8"}})
	say.head("they do not agree", s, "pool")
	s = pool()
	s.away = errAway
	say.head("etcd is away", s, "pool")
	say.head("etcd is away", s, "pool%232")
	s.away = nil
	s.locks = nil
	say.head("nobody holds it", s, "pool")
}

func ofDeaths(say *sayings) {
	alertOnly := func(s *scene) *scene {
		s.unlockers[0].Mode = "alert-only"
		return s
	}
	say.head("only watched", alertOnly(mourning()), abandoned, unlocksAbandoned)
	s := alertOnly(mourning())
	s.unlockers = append(s.unlockers, unlocker("eu-2", s.now))
	s.unlockers[1].Mode = "dry-run"
	say.head("watched in two ways", s, abandoned, unlocksAbandoned)
	s = mourning()
	s.unlockers = nil
	say.head("without an unlocker", s, abandoned, unlocksAbandoned)
	s = mourning()
	s.unlockers[0].RemovalPolicy = nil
	say.head("without a policy", s, abandoned)
	say.head("excluded", mourning(), abandoned,
		publishing(func(p *staleness.Policy) { p.UnlockAbandoned = true }, "billing/*"))
	say.head("late", mourning(), abandoned, unlocksAbandonedSoon)
	s = mourning()
	s.unlockers[0].HeldBack = []string{"etcd"}
	say.part(`<dl class="facts">.*?</dl>`, "held back", s, abandoned, unlocksAbandonedSoon)
	s = mourning()
	s.away = errAway
	s.fresh.HeardAt = s.now.Add(-5 * time.Minute)
	s.fresh.Synced = false
	say.head("stale", s, abandoned, unlocksAbandoned)
	say.in("dead", mourning(), "/api/v1/lock?name="+abandoned, unlocksAbandoned)
	say.in("suspected", mourning(), "/api/v1/lock?name="+quiet, unlocksAbandoned)

	s = busy()
	s.state(abandoned, 40*time.Second, func(st *metadata.Statement) { st.Revision = 1 })
	s.suspect(quiet, time.Minute, func(st *metadata.Statement) {
		st.Cause = metadata.CauseCommandLives
		st.ExitCode = nil
		st.Detail = ""
		st.Reason = "process 71 on drm-9 ended and left 2 processes of its command alive"
	})
	say.head("disputed", s, abandoned, unlocksAbandoned)
	say.in("disputed", s, "/api/v1/lock?name="+abandoned, unlocksAbandoned)
	say.head("its command lives", s, quiet, unlocksAbandoned)
	say.in("disputed, and a command lives", s, "/", unlocksAbandoned)
}

// ofEnds covers the texts about ended holds.
func ofEnds(say *sayings) {
	s := busy()
	old := lockrecord.NewEnding(s.locks[0], metadata.EndingAutoUnlocked, "eu-1", "its deadline passed",
		s.now.Add(-40*time.Second))
	old.UUID = "old"
	old.Owner = "ops"
	s.endings["old"] = &old
	of := "/lock?name=" + stuck + "&hold="
	say.in("over, and held anew", s, of+"old")
	say.in("over, and held anew", s, "/api/v1"+of+"old")
	say.head("asked for by another uuid", s, stuck+"&hold=unknown")
	say.head("asked for by the uuid of another lock's", s, "catalog/sync/eu&hold=old")
	delete(s.documents, stuck)
	say.head("over, and free", s, stuck+"&hold=old")
	say.head("free, and asked for by another uuid", s, stuck+"&hold=unknown")

	s = lived(say)
	e := s.over(stuck, metadata.EndingForced, "bob", "it hung", time.Hour, time.Minute)
	delete(s.endings, e.UUID)
	e.UUID = "ended"
	e.AlertAt = metadata.Time{Time: s.now.Add(-30 * time.Second)}
	e.AutoUnlockAt = metadata.Time{Time: s.now.Add(100 * time.Minute)}
	s.endings[e.UUID] = &e
	say.in("over before its deadlines", s, of+"ended")

	s = busy()
	minute := metadata.Time{Time: s.now.Add(-time.Minute)}
	s.endings["x"] = &metadata.Ending{Name: "gone", UUID: uuid("gone"), Token: 5, Cause: metadata.EndingAbandoned,
		EndedAt: minute, By: "eu-1", Reason: "its container ended 40s ago with exit code 137 (OOMKilled)"}
	s.endings[uuid("asked")] = &metadata.Ending{Name: "asked", UUID: uuid("asked"), Token: 6,
		Cause: metadata.EndingForced, EndedAt: minute, By: "bob", Reason: "it hangs",
		FinishRequest: &metadata.FinishRequest{By: "ann", Source: "cli", Reason: "the deploy waits",
			At: metadata.Time{Time: s.now.Add(-3 * time.Minute)}},
		MoreTime: &metadata.MoreTime{By: "eve", Source: "cli", Reason: "<b>\u202e", Seconds: 1800,
			At: metadata.Time{Time: s.now.Add(-2 * time.Minute)}}}
	s.endings["z"] = &metadata.Ending{Name: "yielded", UUID: uuid("yielded"), Token: 7, Cause: metadata.EndingYielded,
		EndedAt: minute, Reason: "asked by ann: the deploy waits",
		FinishRequest: s.endings[uuid("asked")].FinishRequest}
	say.in("of each kind", s, "/history")
	say.in("of each kind", s, "/api/v1/history")
	say.in("of each kind", s, "/lock?name=asked&hold="+uuid("asked"))
	for _, how := range []string{"released", "abandoned", "yielded", "stolen"} {
		say.in("of one kind", s, "/history?q=ended:"+how)
	}

	s = busy()
	for i := range 20 {
		s.over(stuck, metadata.EndingAutoUnlocked, "eu-1", "its deadline passed", time.Duration(i+2)*time.Hour,
			time.Duration(i+1)*time.Hour-time.Duration(i)*time.Minute)
	}
	s.over("other", metadata.EndingAutoUnlocked, "eu-1", "its deadline passed", 50*time.Hour, time.Hour)
	say.in("of twenty holds", s, "/lock?name="+stuck)
	s.away = errAway
	say.in("of those that cannot be read", s, "/lock?name="+stuck)
	say.in("of those that cannot be read", s, "/history")
	say.in("of those that cannot be read", s, "/api/v1/history")

	s = busy()
	d := s.dashboard(say)
	for n := range 4 {
		s.ends(d, "drm/rotate-keys", time.Duration(3+n)*time.Minute, nil)
	}
	say.page("after four releases", d, "/lock?name=drm/rotate-keys")
	say.page("after four releases", d, "/api/v1/lock?name=drm/rotate-keys")

	s = acknowledged(say)
	s.actions = []protocol.Action{
		{ID: "1", At: minute, Actor: "ann", Verb: protocol.VerbAcknowledge, Lock: stuck, Seconds: 1800},
		{ID: "2", At: minute, Actor: "bob", Verb: protocol.VerbWithdraw, Lock: stuck},
	}
	say.in("of acknowledgements", s, "/audit")
	say.in("searched", s, "/audit?q=carl")
	say.in("searched", s, "/api/v1/audit?q=owner:ann")
	say.in("acknowledged", s, "/api/v1/lock?name="+stuck)
	say.in("acknowledged", s, "/api/v1/locks?fields=name,acknowledged&q=name:"+stuck)
	s.acknowledge(stuck, "ann", "", -time.Second)
	say.head("acknowledged no longer", s, stuck)
	s.put(stuck, append(s.documents[stuck].Fields,
		metadata.Field{Name: lockrecord.FieldAcknowledged, Value: strings.Repeat("x", 64<<10)})...)
	if page := words(ok(say, s.dashboard(say), "/lock?name="+stuck)); !strings.Contains(page,
		"65536 bytes, at most 2048 are read") {
		say.Error("an acknowledgement is read at any length")
	}
	for _, c := range []struct {
		s     *scene
		query string
	}{{asked(say), "ended:yielded"}, {acknowledged(say), "acknowledged-by:ann"}} {
		d := c.s.dashboard(say)
		ended := c.s.documents[stuck].Record
		d.Ended(&ended, nil)
		say.page("released", d, "/history?q="+c.query)
	}
	s = newScene()
	d = s.dashboard(say)
	s.add(hold{name: "a/b", owner: "billing", host: "host-3", purpose: "invoices", held: 6 * time.Minute,
		alert: -time.Minute, unlock: time.Hour, alive: "7 of 9",
		attributes: map[string]string{"heartbeat_until": metadata.FormatTime(s.now.Add(6 * time.Hour))}})
	s.tick(2 * time.Second)
	say.page("while somebody holds it", d, "/lock?name=a/b")
	r := s.locks[0]
	delete(s.documents, "a/b")
	s.locks = nil
	s.tick(10 * time.Second)
	d.Ended(r, nil)
	s.tick(time.Minute)
	say.page("after somebody held it", d, "/lock?name=a/b")
	s, d = watched(say)
	say.page("watched for most of an hour", d, "/timeline?window=1h")
	say.page("watched for most of an hour", d, "/api/v1/timeline?window=6h")
	say.page("watched for most of an hour", d, "/lock?name="+stuck+"&window=24h")
	say.page("watched for most of an hour", d, "/lock?name=catalog/sync/us")
	say.page("watched for most of an hour", d, "/history")
	say.page("watched for most of an hour", d, "/api/v1/history")
	say.page("searched", d, "/timeline?q=owner:=nobody")
	s.away = errAway
	s.tick(time.Minute)
	say.page("searched, and etcd cannot be read", d, "/api/v1/timeline?q=owner:=nobody")
}

func ofLists(say *sayings) {
	s := newScene()
	beating(s, "search/reindex", 3*time.Second)
	beating(s, "fell/silent", 50*time.Second)
	s.add(hold{name: "just/taken", owner: "o", held: time.Second, alert: 59 * time.Second, unlock: 59 * time.Second})
	s.add(hold{name: "short/job", owner: "o", held: 5 * time.Second, alert: 15 * time.Second, unlock: 55 * time.Second})
	s.add(hold{name: "orders/settle", owner: "orders", held: 40 * time.Minute, alert: -27 * time.Minute,
		unlock: 30 * time.Second})
	for _, path := range []string{"/", "/?q=state:expiring", "/api/v1/locks?fields=name,state,expiring"} {
		say.in("heartbeats", s, path)
	}
	s = newScene()
	for name, ahead := range map[string]time.Duration{
		"a": 5*time.Minute - time.Second, "b": 4*time.Minute + 29*time.Second, "c": 2 * time.Minute,
		"d": 119 * time.Second, "e": 59*time.Minute + 40*time.Second, "f": 24*time.Hour - 10*time.Second,
		"g": 3*24*time.Hour + 40*time.Minute, "h": 240*time.Hour - time.Minute,
	} {
		s.add(hold{name: name, owner: "o", held: 5*time.Minute - time.Second, alert: ahead,
			unlock: ahead + 1000*time.Hour})
	}
	say.in("times ahead", s, "/?sort=name")
	s = mourning()
	say.in("of the dead", s, "/?group=owner")
	say.in("of the dead", s, "/api/v1/summary")
	for _, path := range []string{"/waiting", "/?group=owner", "/audit", "/status"} {
		say.in("while etcd is silent", gone(), path)
	}
	say.in("nothing is found", s, "/?group=owner&q=nothing")
	say.in("a lock is named", s, "/?q=catalog/sync/eu")
	for _, path := range []string{"/", "/waiting", "/api/v1/summary"} {
		say.in("unclaimed", neglected(), path)
	}
	s = neglected()
	s.fresh.HeardAt = s.now.Add(-time.Minute)
	s.unclaimed = append(s.unclaimed, diagnosis.Unclaimed{Name: "too/new", Since: s.now.Add(-time.Minute)})
	say.in("unclaimed, and etcd is silent", s, "/?q=orders/settle")
	s = pool()
	for _, path := range []string{"/?q=waiters:%3E1", "/?q=pool", "/api/v1/locks?sort=name&q=owner:batch",
		"/waiting?q=owner:batch", "/waiting?q=owner:nobody"} {
		say.in("several hold a lock", s, path)
	}
	for _, path := range []string{"/?group=owner", "/waiting"} {
		say.in("some block more", blocking(), path)
	}
	s = busy()
	for _, path := range []string{"/api/v1/locks?q=invoice", "/api/v1/summary",
		"/api/v1/locks?q=legacy&fields=name,state,owner,locked_at,problems"} {
		say.in("a night", s, path)
	}

	s.wait("drm/rotate-keys", "catalog", 40*time.Minute)
	for i := range 8 {
		s.wait("legacy/cron", fmt.Sprint("worker-", i), time.Duration(i+1)*time.Second)
	}
	s.wait("between/holders", "ops", 2*time.Second)
	for _, path := range []string{"/waiting", "/waiting?q=owner:drm"} {
		say.in("who waits where", s, path)
	}
	s = newScene()
	for _, name := range []string{"a", "b", "c", "d"} {
		s.add(hold{name: "lock-" + name, owner: name, host: name + "-0", held: time.Minute, alert: time.Hour,
			unlock: 2 * time.Hour})
	}
	for _, waits := range []string{"b a", "c b", "a c", "d a", "d d"} { // the last one for itself
		lock, owner, _ := strings.Cut(waits, " ")
		s.wants(owner, owner+"-0", "lock-"+lock)
	}
	s.add(hold{name: "blocks", owner: "z", held: time.Hour, alert: -time.Minute, unlock: time.Hour})
	s.wait("blocks", "w", time.Hour)
	say.in("three wait for each other", s, "/waiting")
	say.in("three wait for each other", s, "/?group=owner")
	say.head("one of them", s, "lock-b")
	say.head("none of them", s, "lock-d")
	s = pool() // media-0 has a permit; its neighbour waits for one and holds what media-0 wants
	s.add(hold{name: "wanted", owner: "hungry", host: "hungry-0", held: time.Minute, alert: time.Hour,
		unlock: time.Hour})
	s.wants("hungry", "hungry-0", "pool")
	s.wants("media", "media-0", "wanted")
	s.wants("media", "media-1", "wanted")
	s.wants("batch", "batch-1", "wanted")
	say.in("nobody can give a permit back", s, "/waiting")
	for _, name := range []string{"pool", "pool%231", "wanted"} {
		say.head("nobody can give a permit back", s, name)
	}
	s = pool()
	s.add(hold{name: "wanted", owner: "hungry", host: "hungry-0", held: time.Minute, alert: time.Hour,
		unlock: time.Hour})
	s.wants("hungry", "hungry-0", "catalogue")
	s.wants("shop", "shop-2", "wanted")
	say.in("a reader waits for a writer", s, "/waiting")
}

// ofHeadlines covers the top of the list with its links. The choice of the sentence is tested where it is made.
func ofHeadlines(say *sayings) {
	for _, c := range []struct {
		situation string
		change    func(*scene)
	}{
		{"late", func(s *scene) { s.locks = slices.Delete(s.locks, 1, 2) }},
		{"silent", func(*scene) {}},
		{"dead", func(s *scene) { s.state(stuck, 40*time.Second) }},
		{"several hold it", func(s *scene) { s.locks, s.queues = pool().locks, pool().queues }},
		{"no unlocker", func(s *scene) { s.unlockers = nil }},
		{"two wait for each other", (*scene).blocksItself},
		{"etcd is silent, no unlocker, and two wait for each other", func(s *scene) {
			s.fresh.HeardAt = s.now.Add(-time.Minute)
			s.unlockers = nil
			s.blocksItself()
		}},
		{"malformed", func(s *scene) { s.locks = s.locks[4:] }},
		{"nothing", func(s *scene) { s.locks, s.queues = nil, nil }},
	} {
		s := busy()
		c.change(s)
		d, _ := operated(say, s, marking(say, s, new([]protocol.Action)))
		page := get(d, "/", "X-Forwarded-User", "chief").Body.String()
		fmt.Fprintf(&say.text, "# %s\n\n%s\n\n", c.situation, headlineOf(page))
		s.firstRowIsTheLockOfTheSentence(say, s.dashboard(say))
	}
	d := neglected().dashboard(say)
	fmt.Fprintf(&say.text, "# unclaimed\n\n%s\n\n", headlineOf(ok(say, d, "/")))
	look := regexp.MustCompile(`<header class="lock-head[^>]*>|<link[^>]*icon\.svg[^>]*>`)
	looks := look.FindAllString(ok(say, d, "/lock?name="+settle), -1)
	fmt.Fprintf(&say.text, "# how the lock looks then\n\n%s\n\n", looks)
	copied := regexp.MustCompile(`(?s)data-copy="([^"]*)" aria-label="copy for the incident`).
		FindStringSubmatch(ok(say, settling().dashboard(say), "/lock?name=orders/settle"))[1]
	fmt.Fprintf(&say.text, "# copied for an incident\n\n%s\n", copied)
}

// blocksItself makes the holders of two locks of the busy night wait for each other.
func (s *scene) blocksItself() {
	s.queues = map[string][]metadata.Waiter{}
	s.wants("drm", "drm-10", "drm/rotate-keys")
	s.wants("drm", "drm-9", "drm/rotate-keys-2")
}

func headlineOf(page string) string {
	return regexp.MustCompile(`(?s)<div class="headline.*?\n</div>.*?\n</div>`).FindString(page)
}

// ofOthers covers the texts about unlockers and etcd, and in forms.
func ofOthers(say *sayings) {
	s := busy()
	s.add(hold{name: "reports", owner: "o", held: time.Hour, alert: -time.Hour, unlock: -2 * time.Minute})
	for _, rule := range []staleness.Rule{staleness.RuleGap, staleness.RuleStale, staleness.RuleEtcd,
		staleness.RuleClock, staleness.RuleUnverified, staleness.RuleRevision, staleness.RuleBrake, "something new"} {
		s.unlockers[0].HeldBack = []string{string(rule)}
		headline := regexp.MustCompile(`<div class="headline.*`).FindString(ok(say, s.dashboard(say), "/"))
		fmt.Fprintf(&say.text, "# held back by %s\n\n%s\n", rule, paragraphs(headline))
	}
	s = newScene()
	for _, name := range []string{"pool<b>#1", "pool<b>#2"} {
		s.add(hold{name: name, owner: "media", host: "media-0", held: time.Minute, alert: time.Hour,
			unlock:     2 * time.Hour,
			attributes: map[string]string{"kind": "semaphore", "permits": "2", "limit": "3"}})
	}
	s.unlockers[0].RemovalPolicy.Exclude = []string{"db/*", "cron/?"}
	say.in("a lock is inconsistent", s, "/status")
	say.in("a lock is inconsistent", s, "/lock?name=pool%3Cb%3E")
	say.in("a lock is inconsistent", s, "/api/v1/locks?fields=name&q=state:malformed")
	s.unlockers = []metadata.Presence{unlocker("eu-1", s.now), unlocker("eu-2", s.now), unlocker("eu-3", s.now)}
	s.unlockers[1].RemovalPolicy.Abandoned = metadata.AbandonedUnlock
	s.unlockers[1].RemovalPolicy.Exclude = []string{"db/*", "\x1b<b>"}
	s.unlockers[2].Mode = "dry-run"
	s.unlockers[2].RemovalPolicy = nil // an old one, which removes nothing
	say.in("unlockers disagree", s, "/status")
	s.unlockers[2].Mode = "auto-unlock"
	s.members = []app.Member{{Endpoint: "etcd-0:2379", Role: "leader", Version: "3.7.3", Size: 3 << 20,
		Quota: 2 << 30}, {Endpoint: "etcd-1:2379", Problem: "timeout"}}
	s.settings = []app.Setting{{Name: "web.environment", Value: "prod-eu", Public: true}}
	s.alarm = "etcd is out of space"
	s.certificates = []app.Certificate{{Name: "client certificate", ExpiresAt: time.Unix(1763600523, 0),
		Expiry: "expired at 2025-11-20 01:02:03 UTC",
		IsDue:  true}, {Name: "web certificate", Expiry: "expires at 2027-02-20 01:02:03 UTC"}}
	say.in("members, an alarm, and a policy that nobody knows", s, "/status")
	say.in("an alarm", s, "/api/v1/summary")
	say.in("members", s, "/api/v1/status")

	s = busy()
	s.wait(free, "catalog", time.Minute)
	s.wait("pool", "catalog", time.Minute)
	d := operators(say, s, new([]protocol.Action), new(error))
	say.page("a lock delay", d, "/lock?name="+free)
	say.page("a lock delay", d, endLink(free))
	say.page("a lock delay", d, "/api/v1/lock?name="+free)
	s.fresh.HeardAt = s.now.Add(-time.Minute)
	say.page("a lock delay, as of a minute ago", d, "/lock?name="+free)
	s.fresh.HeardAt = s.now
	say.in("no lock delay any more", s, endLink(free))
	say.head("a lock delay, and it is held", s, stuck, delayed(s, stuck))
	say.in("a lock delay, and it is held", s, "/api/v1/lock?name="+stuck, delayed(s, stuck))
	say.in("excluded", s, unlockLink(s, stuck), publishing(func(*staleness.Policy) {}, "billing/*"))
	say.in("the delay of a share", s, strings.ReplaceAll(endLink("pool#2"), "#", "%23"), delayed(s, "pool#2"),
		func(c *app.Config) {
			operates(c, func(protocol.ActionTarget, protocol.Action) error { return nil }, protocol.VerbEndDelay)
		})
}
