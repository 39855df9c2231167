package dashboard_test

import (
	"fmt"
	"html"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestOrders(t *testing.T) {
	const impact = "one two/early two/late many nobody's calm odd odd too" // by what it costs to wait, in sum
	for s, orders := range map[*scene]map[string]string{
		busy(): {
			"name":  "billing/invoice-run catalog/sync/eu drm/rotate-keys drm/rotate-keys-2 legacy/cron",
			"-name": "legacy/cron drm/rotate-keys-2 drm/rotate-keys catalog/sync/eu billing/invoice-run",
			// drm-9 before drm-10
			"host": "billing/invoice-run catalog/sync/eu drm/rotate-keys drm/rotate-keys-2 legacy/cron",
			// unknown last
			"held":    "drm/rotate-keys-2 catalog/sync/eu billing/invoice-run drm/rotate-keys legacy/cron",
			"-held":   "drm/rotate-keys billing/invoice-run catalog/sync/eu drm/rotate-keys-2 legacy/cron",
			"unlock":  "billing/invoice-run catalog/sync/eu drm/rotate-keys legacy/cron drm/rotate-keys-2",
			"waiters": "billing/invoice-run catalog/sync/eu drm/rotate-keys drm/rotate-keys-2 legacy/cron",
			"owner":   "billing/invoice-run catalog/sync/eu drm/rotate-keys drm/rotate-keys-2 legacy/cron",
			"urgency": "catalog/sync/eu billing/invoice-run legacy/cron drm/rotate-keys-2 drm/rotate-keys",
		},
		blocking(): {
			"":         impact,
			"urgency":  impact,
			"-urgency": "odd too odd calm nobody's many two/late two/early one",
			"waiters":  "many two/early two/late odd one calm nobody's odd too",
			"-waiters": "one odd two/late two/early many calm nobody's odd too",
		},
	} {
		d := s.dashboard(t)
		for by, want := range orders {
			if got := strings.Join(names(t, d, "/api/v1/locks?sort="+by), " "); got != want {
				t.Errorf("sorted by %q: %s, want %s", by, got, want)
			}
		}
	}
}

func TestQueryFinds(t *testing.T) {
	s := busy()
	s.acknowledge(stuck, "ann", "", 30*time.Minute)
	d := s.dashboard(t)
	at := func(minutes int) string { return s.now.Add(time.Duration(minutes) * time.Minute).Format(time.RFC3339) }
	const others = "catalog/sync/eu drm/rotate-keys drm/rotate-keys-2 legacy/cron"
	for query, want := range map[string]string{
		"": "billing/invoice-run catalog/sync/eu drm/rotate-keys drm/rotate-keys-2 " +
			"legacy/cron",
		"INVOICE":            "billing/invoice-run",
		"tenant":             "billing/invoice-run",
		`"invoices, tenant"`: "billing/invoice-run",
		`"tenant invoices"`:  "",
		"drm -keys-2":        "drm/rotate-keys",
		"name:drm":           "drm/rotate-keys drm/rotate-keys-2",
		"name:drm/*keys":     "drm/rotate-keys",
		"drm/*":              "drm/rotate-keys drm/rotate-keys-2",
		"-DRM/* -cat* -b*":   "legacy/cron",
		"drm/rotate-key? c*": "catalog/sync/eu drm/rotate-keys",
		"drm/* c* owner:drm": "drm/rotate-keys drm/rotate-keys-2",
		`"drm/*"`:            "",
		"db:migrate":         "", // a word, as names have colons
		"-db:migrate DRM":    "drm/rotate-keys drm/rotate-keys-2",
		"name:/": "billing/invoice-run catalog/sync/eu drm/rotate-keys drm/rotate-keys-2 " +
			"legacy/cron",
		"name://":                     "",
		"name:/keys-[0-9]$/":          "drm/rotate-keys-2",
		"owner:billing,catalog":       "billing/invoice-run catalog/sync/eu",
		"owner:=Billing":              "billing/invoice-run",
		"owner:b*,cata":               "billing/invoice-run catalog/sync/eu",
		"owner:bill?":                 "",
		"host:DRM-? host:drm*:17":     "drm/rotate-keys",
		"purpose:*tenant*":            "billing/invoice-run",
		"owner:=bill":                 "",
		"host:=drm-9":                 "drm/rotate-keys",
		"host:=drm-9:17":              "drm/rotate-keys",
		"host:drm-9:17":               "drm/rotate-keys",
		"pid:17 purpose:sync":         "catalog/sync/eu",
		"hold:" + uuid("legacy/cron"): "legacy/cron",
		"state:alerting":              "billing/invoice-run catalog/sync/eu",
		"state:alerting,malformed":    "billing/invoice-run catalog/sync/eu legacy/cron",
		"state:expiring":              "",
		"-state:held":                 "billing/invoice-run catalog/sync/eu legacy/cron",
		"held:>20m":                   "billing/invoice-run catalog/sync/eu drm/rotate-keys-2",
		"held:<1h -held:<20m":         "billing/invoice-run catalog/sync/eu",
		"taken:>" + at(-30):           "billing/invoice-run drm/rotate-keys",
		"taken:<" + at(-30):           "catalog/sync/eu drm/rotate-keys-2",
		"alerted:>" + at(-5):          "catalog/sync/eu",
		"alert:<5m":                   "billing/invoice-run catalog/sync/eu drm/rotate-keys-2",
		"unlock:<2m":                  "billing/invoice-run",
		"unlock:>2d":                  "drm/rotate-keys-2",
		"wait:>30s waiters:>1":        "billing/invoice-run",
		"label:team=core":             "catalog/sync/eu",
		"label:team":                  "catalog/sync/eu",
		"expired:>0s":                 "",
		"acknowledged:yes":            stuck,
		"-acknowledged:no":            stuck,
		"acknowledged:no":             others,
		"acknowledged-by:an":          stuck,
		"acknowledged-by:=ann":        stuck,
	} {
		if got := strings.Join(names(t, d, "/api/v1/locks?sort=name&q="+url.QueryEscape(query)), " "); got != want {
			t.Errorf("%q finds %q, want %q", query, got, want)
		}
	}
}

func TestBadQueryTermIsReportedAndTheRestApplies(t *testing.T) {
	d := busy().dashboard(t)
	for term, why := range map[string]string{
		"taken:>soon":            "needs > or < and a time, like taken:>2026-11-21T03:00:00Z",
		"held:1h":                "needs > or < and a duration, like held:>1h30m",
		"unlock:<soon":           "needs > or < and a duration",
		"held:>-1h":              "needs > or < and a duration",
		"waiters:>-1":            "needs > or < and a number",
		"state:gone":             "no such state, only held, alerting, expiring, abandoned, expired, malformed",
		"name:/(/":               "missing closing )",
		"pid:0":                  "needs a process id",
		"owner:":                 "the key owner needs a value",
		"acknowledged:perhaps":   "must be yes or no",
		"acknowledged-by:":       "the key acknowledged-by needs a value",
		strings.Repeat("x ", 17): "only the first 16 terms are read",
		strings.Repeat("x", 513): "the query has",
		"name:/" + strings.Repeat("x", 129) + "/": "a regular expression may have 128 bytes",
		"name:/a/ name:/b/ name:/c/":              "only 2 regular expressions are allowed",
	} {
		page := ok(t, d, "/?q="+url.QueryEscape(term+" -zzz"))
		wantWords(t, page, "Ignored ", why)
		w := get(d, "/api/v1/locks?q="+url.QueryEscape(term))
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), `"code":"bad_query"`) {
			t.Errorf("the API answers %q with %d %s", term, w.Code, w.Body)
		}
	}
	if long := ok(t, d, "/?q=-"+strings.Repeat("x", 30_000)); len(long) > 50_000 {
		t.Errorf("a query that is far too long makes a page of %d bytes", len(long))
	}
	page := ok(t, d, "/?q="+url.QueryEscape("state:gone drm"))
	wantWords(t, page, "2 of 5 locks · 2 on time", "drm/rotate-keys")
}

func TestAPIReportsBadQueries(t *testing.T) {
	d := busy().dashboard(t)
	for parameter, why := range map[string]string{
		"sort=colour": "there are urgency", "limit=0": "a number from 1 to 1000",
		"limit=1001": "a number from 1 to 1000", "after=x": "belongs to another list",
		"fields=name,colour": "there are name, name_base64, state",
	} {
		w := get(d, "/api/v1/locks?"+parameter)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), `"code":"bad_query"`) ||
			!strings.Contains(w.Body.String(), why) {
			t.Errorf("%s is answered with %d %s", parameter, w.Code, w.Body)
		}
	}
	for list, own := range map[string]string{"history": "from=yesterday to=1", "timeline": "window=2h"} {
		for bad := range strings.FieldsSeq("limit=0 limit=1001 limit=x after=%2e after=zz q=state:gone " + own) {
			if w := get(d, "/api/v1/"+list+"?"+bad); w.Code != http.StatusBadRequest {
				t.Errorf("%s?%s is answered with %d", list, bad, w.Code)
			}
		}
	}
}

func TestOwnerAndHostLinksListOnlyTheirLocks(t *testing.T) {
	s := newScene()
	for _, owner := range []string{"api", "api-gateway", "api,web", "an api", `an "api" 2"`} {
		for _, lock := range []string{"/a", "/b"} {
			s.add(hold{name: owner + lock, owner: owner, host: owner, held: time.Minute, alert: -time.Minute,
				unlock: time.Hour})
		}
	}
	d := s.dashboard(t)
	for _, page := range []string{"/", "/?group=owner"} {
		links := slices.DeleteFunc(attributes(ok(t, d, page), "href"),
			func(link string) bool { return !strings.Contains(link, ":=") || strings.HasPrefix(link, "/timeline") })
		if slices.Sort(links); len(slices.Compact(slices.Clone(links))) < 4 {
			t.Errorf("%s has only the links %q", page, links)
		}
		for _, link := range links {
			wantWords(t, ok(t, d, link), "2 of 10 locks")
		}
	}
}

// link is the address behind rel="next" or rel="prev"; empty at the ends.
func link(page, rel string) string {
	m := regexp.MustCompile(`rel="` + rel + `" href="([^"]*)"`).FindStringSubmatch(page)
	if m == nil {
		return ""
	}
	return html.UnescapeString(m[1])
}

func TestPagingBackRetracesItsSteps(t *testing.T) {
	s := newScene()
	for i := range 120 {
		s.add(hold{name: fmt.Sprintf("lock-%03d", i), held: time.Minute, alert: time.Hour, unlock: 2 * time.Hour})
	}
	d := s.dashboard(t)
	first := ok(t, d, "/?limit=50")
	second := ok(t, d, link(first, "next"))
	third := ok(t, d, link(second, "next"))
	wantWords(t, third, "101–120 of 120")
	if link(third, "next") != "" || link(first, "prev") != "" {
		t.Error("there is a way beyond the ends")
	}
	back := ok(t, d, link(third, "prev"))
	wantWords(t, back, "51–100 of 120", "lock-050", "lock-099")
	wantWords(t, ok(t, d, link(back, "prev")), "1–50 of 120", "lock-000")
	wantWords(t, ok(t, d, "/?limit=50&after=nonsense"), "1–50 of 120")
	wantWords(t, ok(t, d, strings.Replace(link(first, "next"), "limit=50", "limit=50&sort=name", 1)), "1–50 of 120")
}

func TestLimitsApply(t *testing.T) {
	s := newScene()
	for i := range 1100 {
		s.add(hold{name: fmt.Sprintf("lock-%04d", i), held: time.Minute, alert: time.Hour, unlock: 2 * time.Hour})
	}
	d := s.dashboard(t)
	for limit, want := range map[int]int{100_000: 250, -1: 100} { // at most, and by default
		if n := strings.Count(ok(t, d, fmt.Sprint("/?limit=", limit)), `class="name"`); n != want {
			t.Errorf("with a limit of %d, a page shows %d rows, want %d", limit, n, want)
		}
	}
	data, meta := fetch[[]lock](t, d, "/api/v1/locks?limit=1000")
	rest, _ := fetch[[]lock](t, d, "/api/v1/locks?limit=1000&after="+meta["next"].(string))
	if len(data) != 1000 || len(rest) != 100 || meta["total"] != 1100.0 {
		t.Errorf("the API pages %d and %d of %v", len(data), len(rest), meta["total"])
	}
}

func TestLimitsApplyToOneLock(t *testing.T) {
	s := newScene()
	const n = 1100
	for i := range n {
		s.add(hold{name: fmt.Sprint("pool#", i+1), held: time.Minute, alert: time.Hour, unlock: 2 * time.Hour,
			attributes: map[string]string{"kind": "semaphore"}})
		s.wait("pool", fmt.Sprint("waiter-", i), time.Duration(i%1000)*time.Minute)
	}
	s.locks[n-1].AlertAt = s.now.Add(-time.Minute)
	s.queues["free"] = s.queues["pool"]
	delays := make([]metadata.LockDelay, n)
	for i := range delays {
		delays[i].Name = fmt.Sprint("pool#", i+1)
	}
	d := s.dashboard(t, func(c *app.Config) { of(c).delays = func() []metadata.LockDelay { return delays } })
	wantWords(t, ok(t, d, "/lock?name=pool"), "There are 1,090 more delays.")
	for _, name := range []string{"pool", "pool%231", "free"} {
		page := ok(t, d, "/lock?name="+name)
		wantWords(t, page, " 1,100 # Owner", "show 45 more", "and 1,050 more; the longest wait is 16h 39m")
		if rows := strings.Count(page, `<td data-c="gives up">`); rows != 50 {
			t.Errorf("the page of %s shows %d waiters", name, rows)
		}
	}
	data, _ := fetch[lock](t, d, "/api/v1/lock?name=pool")
	for list, total := range map[string]string{"queue": "waiters", "holders": "holder_count", "delays": "delay_count"} {
		if listed := len(data[list].([]any)); listed != 1000 || data[total] != 1100.0 {
			t.Errorf("%d %s of %v", listed, list, data[total])
		}
	}
	first := data["holders"].([]any)[0].(lock)
	if data["permits"] != 1100.0 || data["state"] != "alerting" || first["name"] != s.locks[n-1].Name {
		t.Errorf("%v permits, %v, first %v", data["permits"], data["state"], first["name"])
	}
}

// A snapshot that grew equals that of a freshly started dashboard: orders, versions, and the sentence on top. Its lock
// is row 1 of the page and, if somebody holds it, of the JSON.
func TestSortingIsIndependentOfHowTheSnapshotWasBuilt(t *testing.T) {
	s := crowd(60)
	began := s.now
	clock := func() time.Duration { return time.Hour + s.now.Sub(began) }
	goes := func(c *app.Config) { of(c).clock = clock }
	grown := s.dashboard(t, goes)
	random := rand.New(rand.NewPCG(3, 4))
	for round := range 32 {
		s.tick(time.Duration(1+random.IntN(40)) * time.Second) // states change by themselves
		switch round % 4 {                                     // and in every fourth round nothing else happens
		case 0:
			s.locks = slices.Clone(s.locks)
			for range random.IntN(20) {
				s.happens(random, clock())
			}
		case 1:
			s.unlockers[0].Mode = []string{"auto-unlock", "alert-only"}[random.IntN(2)]
		case 3:
			s.unclaimed = nil
			if random.IntN(4) == 0 {
				s.unclaimed = []diagnosis.Unclaimed{{Name: settle, Since: s.now, Waiters: 3}}
			}
		case 2: // etcd has been silent, perhaps since before the last round
			s.fresh.HeardAt = s.now.Add(-time.Duration(random.IntN(60)) * time.Second)
		}
		fresh := s.dashboard(t, goes)
		s.firstRowIsTheLockOfTheSentence(t, grown)
		paths := []string{"/api/v1/summary"}
		for _, by := range []string{"urgency", "-urgency", "name", "-name", "unlock", "-held", "host", "waiters"} {
			paths = append(paths, "/api/v1/locks?limit=1000&fields=name&sort="+by)
		}
		for _, path := range paths {
			got, want := get(grown, path), get(fresh, path)
			if got.Body.String() != want.Body.String() {
				t.Fatalf("round %d: %s differs:\n%s\n%s", round, path, got.Body, want.Body)
			}
			if got.Header().Get("ETag") != want.Header().Get("ETag") {
				t.Fatalf("round %d, %s: the versions differ: two replicas would not agree", round, path)
			}
		}
	}
}

func (s *scene) firstRowIsTheLockOfTheSentence(t testing.TB, d http.Handler) {
	t.Helper()
	summary, _ := fetch[map[string]any](t, d, "/api/v1/summary")
	said := summary["headline"].(map[string]any)
	name, _ := said["lock"].(string)
	if name == "" {
		return
	}
	page := ok(t, d, "/")
	row := regexp.MustCompile(`<a class="name" href="/lock\?name=([^&"%]*)`).FindStringSubmatch(page)[1]
	held, _, _ := strings.Cut(names(t, d, "/api/v1/locks?limit=1")[0], "#")
	if row != name || said["class"] != "unclaimed" && held != name {
		t.Fatalf("row 1 is %s, in JSON %s; the sentence is %q", row, held, said["sentence"])
	}
	if _, needy, some := strings.Cut(page, "<h2>On time"); some && strings.Contains(needy, `class="alerting"`) {
		t.Fatal("a late lock is below one that is on time")
	}
}

// happens makes a random event happen to one of the locks.
func (s *scene) happens(random *rand.Rand, mono time.Duration) {
	s.revision++
	i := random.IntN(len(s.locks))
	changed := *s.locks[i]
	changed.Revision = s.revision
	changed.Seen = metadata.Seen{First: mono, Changed: mono}
	switch random.IntN(6) {
	case 0:
		s.locks = slices.Delete(s.locks, i, i+1)
		return
	case 1:
		changed.AlertAt = s.now.Add(time.Duration(random.IntN(90)) * time.Second)
		changed.AutoUnlockAt = changed.AlertAt.Add(time.Duration(random.IntN(90)) * time.Second)
	case 2:
		changed.Alive = &metadata.Alive{At: s.now, Revision: s.revision}
		changed.Extensions = 30
	case 3:
		lockrecord.AttachStatements(&changed, &metadata.Statement{Name: changed.Name, UUID: changed.UUID,
			Token: changed.Token, Revision: s.revision, Cause: metadata.CauseProcessEnded,
			EndedAt: metadata.Time{Time: s.now}, Seen: mono},
			nil)
	case 4:
		s.wait(changed.Name, "waiter", time.Minute)
	case 5:
		changed.Name += "+"
		s.locks = slices.Insert(s.locks, i+1, &changed)
		return
	}
	s.locks[i] = &changed
}

func TestSectionedListIsAsLongAsAPlainOne(t *testing.T) {
	page := ok(t, crowd(5000).dashboard(t), "/?group=owner&limit=100")
	if n := strings.Count(page, "<tbody"); n != 100 {
		t.Errorf("sections have %d rows in all, want 100", n)
	}
	wantWords(t, page, "50 owners", "50 more", "show")
	if !slices.Contains(attributes(page, "href"), "/?q=owner:=service-07") {
		t.Error("a section has no link to the rest")
	}
}
