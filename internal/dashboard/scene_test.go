package dashboard_test

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// TestMain lets more garbage accumulate: a third of the time went into its collection.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// scene is a world for a dashboard: closures over values that a test changes.
type scene struct {
	mu        sync.Mutex // for tests in which something runs beside them
	now       time.Time
	locks     []*metadata.Record
	replaced  bool                      // the records are never written to, only replaced where they stand
	view      func() []*metadata.Record // the locks as the dashboard sees them
	documents map[string]metadata.FullRecord
	queues    map[string][]metadata.Waiter
	unlockers []metadata.Presence
	unclaimed []diagnosis.Unclaimed
	foreign   []string
	fresh     protocol.Freshness
	away      error // what etcd answers to every read
	endings   map[string]*metadata.Ending
	actions   []protocol.Action
	relists   uint64
	revision  int64
	leased    []*locks.Row
	members   []app.Member
	alarm     string
	moved     string // the lock whose record has just been written to

	certificates []app.Certificate

	settings []app.Setting
	log      strings.Builder
}

// newScene is the night of 21 November 2026, a little after three: nothing is held, one unlocker runs, etcd is well.
func newScene() *scene {
	now := time.Date(2026, 11, 21, 3, 12, 41, 0, time.UTC)
	return &scene{
		now: now, revision: 918273, documents: map[string]metadata.FullRecord{}, queues: map[string][]metadata.Waiter{},
		endings:   map[string]*metadata.Ending{},
		unlockers: []metadata.Presence{unlocker("eu-1", now)},
		fresh: protocol.Freshness{Synced: true, Revision: 918273, HeardAt: now.Add(-2 * time.Second),
			ProgressInterval: 2 * time.Second},
	}
}

// unlocker is one that removes locks, by the default policy.
func unlocker(id string, arrived time.Time) metadata.Presence {
	return metadata.Presence{ArrivedAt: arrived, ID: id, Mode: "auto-unlock",
		LastGap: metadata.Time{Time: arrived.Add(-20 * time.Minute)}, LastGapCause: "etcd takes writes again",
		RemovalPolicy: staleness.DefaultPolicy().ToPresence(nil)}
}

// publishing makes all unlockers publish a different policy.
func publishing(change func(*staleness.Policy), exclude ...string) func(*app.Config) {
	return func(c *app.Config) {
		running := of(c).unlockers
		of(c).unlockers = func() []metadata.Presence {
			all := slices.Clone(running())
			for i := range all {
				p, _ := staleness.FromPresence(all[i].RemovalPolicy)
				change(&p)
				all[i].RemovalPolicy = p.ToPresence(exclude)
			}
			return all
		}
	}
}

// copied are immutable records, like those of a view: the slice and its records stay the same until they change.
func copied(records func() []*metadata.Record) func() []*metadata.Record {
	var mu sync.Mutex
	var of, now []*metadata.Record
	known := map[*metadata.Record]*metadata.Record{}
	return func() []*metadata.Record {
		all := records()
		mu.Lock()
		defer mu.Unlock()
		if len(all) == len(of) && (len(all) == 0 || &all[0] == &of[0]) {
			return now
		}
		next := make(map[*metadata.Record]*metadata.Record, len(all))
		of, now = all, make([]*metadata.Record, len(all))
		for i, r := range all {
			c := known[r]
			if c == nil || !reflect.DeepEqual(c, r) {
				c = new(*r)
			}
			next[r], now[i] = c, c
		}
		known = next
		return now
	}
}

// sources are a test's view and store, in which each method can be replaced.
type sources struct {
	clock     func() time.Duration
	shown     func() []*metadata.Record
	queues    func() map[string][]metadata.Waiter
	delays    func() []metadata.LockDelay
	unlockers func() []metadata.Presence
	foreign   func() ([]string, int)
	others    int // keys of other lock libraries
	fresh     func() protocol.Freshness
	get       func(ctx context.Context, lock string) (metadata.FullRecord, int64, error)
	ending    func(ctx context.Context, uuid string) (*metadata.Ending, error)
	history   func(ctx context.Context, limit int) ([]metadata.Ending, error)
	audit     func(ctx context.Context, limit int) ([]protocol.Action, error)
}

// of returns the sources in the configuration of a scene.
func of(c *app.Config) *sources { return c.View.(*sources) }

func (s *sources) Unlockers() []metadata.Presence { return s.unlockers() }
func (s *sources) Foreign() (sample []string, total, others int) {
	sample, total = s.foreign()
	return sample, total, s.others
}
func (s *sources) Fresh() protocol.Freshness { return s.fresh() }
func (s *sources) ReadRecord(ctx context.Context, lock string) (metadata.FullRecord, int64, error) {
	return s.get(ctx, lock)
}

func (s *sources) ReadEnding(ctx context.Context, uuid string) (*metadata.Ending, error) {
	return s.ending(ctx, uuid)
}

func (s *sources) ReadHistory(ctx context.Context, limit int) ([]metadata.Ending, error) {
	return s.history(ctx, limit)
}

func (s *sources) ReadAudit(ctx context.Context, limit int) ([]protocol.Action, error) {
	return s.audit(ctx, limit)
}

// snapshots is the read model of these sources, which a test may still replace.
func (s *sources) snapshots(of *scene) *locks.Snapshots {
	return locks.NewSnapshots(locks.Source{
		Locks:     func() []*metadata.Record { return s.shown() },
		Queues:    func() map[string][]metadata.Waiter { return s.queues() },
		Delays:    func() []metadata.LockDelay { return s.delays() },
		Unclaimed: func() []diagnosis.Unclaimed { return of.unclaimed },
		Leased:    func() []*locks.Row { return of.leased },
		Combined: func() diagnosis.CombinedPolicy {
			return diagnosis.CombinePolicies(s.unlockers())
		},
		Clock: func() time.Duration { return s.clock() },
	})
}

func (s *scene) config() app.Config {
	layout := protocol.DefaultLayout()
	s.view = read(s, func() []*metadata.Record { return s.locks })
	if !s.replaced {
		s.view = copied(s.view)
	}
	from := &sources{
		clock:     func() time.Duration { return time.Hour },
		shown:     s.view,
		queues:    func() map[string][]metadata.Waiter { return s.queues },
		delays:    func() []metadata.LockDelay { return nil },
		unlockers: func() []metadata.Presence { return s.unlockers },
		foreign:   func() ([]string, int) { return s.foreign, len(s.foreign) },
		fresh:     read(s, func() protocol.Freshness { return s.fresh }),
		get: func(_ context.Context, lock string) (metadata.FullRecord, int64, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.documents[lock], s.revision, s.away
		},
		ending: func(_ context.Context, uuid string) (*metadata.Ending, error) { return s.endings[uuid], s.away },
		history: func(context.Context, int) ([]metadata.Ending, error) {
			var all []metadata.Ending
			for _, e := range s.endings {
				all = append(all, *e)
			}
			return all, s.away
		},
		audit: func(context.Context, int) ([]protocol.Action, error) { return slices.Clone(s.actions), s.away },
	}
	return app.Config{
		View: from, Store: from, Snapshots: from.snapshots(s),
		Members:        func() []app.Member { return s.members },
		LeasedProblems: func() []string { return nil },
		Certificates:   func() []app.Certificate { return s.certificates },
		Alarm:          func() string { return s.alarm },
		Relists:        func() uint64 { return s.relists },
		Explain:        func(err error) string { return err.Error() },
		Now:            read(s, func() time.Time { return s.now }),
		Log:            zerolog.New(zerolog.SyncWriter(&s.log)), Layout: layout, Version: "v1",
		Environment: "prod-eu",
		// as httptest calls itself
		Endpoints: []string{"etcd-0:2379"}, Settings: s.settings, Hosts: []string{"example.com"},
	}
}

// act is the effect of an operator's action in a test.
type act func(on protocol.ActionTarget, a protocol.Action) error

// acts is a test's operator, by verb.
type acts map[protocol.Verb]act

// Perform implements [app.Operator].
func (m acts) Perform(_ context.Context, v protocol.Verb, on protocol.ActionTarget,
	a protocol.Action) (out protocol.Outcome, err error) {
	if v == protocol.VerbForceUnlock {
		out.Ending = protocol.ForcedRemoval(on.Hold, a, on.LockDelayAfter).Ending
	}
	if m[v] == nil {
		return out, errors.New("not in this test")
	}
	return out, m[v](on, a)
}

// operates enables these verbs.
func operates(c *app.Config, do act, verbs ...protocol.Verb) {
	all, _ := c.Operator.(acts)
	all = maps.Clone(all)
	if all == nil {
		all = acts{}
	}
	for _, v := range verbs {
		all[v] = do
		c.Enabled = append(c.Enabled, access.Permission(v.Info().Permission))
	}
	c.Operator = all
}

// read makes a closure safe for concurrent use with [scene.change].
func read[T any](s *scene, get func() T) func() T {
	return func() T {
		s.mu.Lock()
		defer s.mu.Unlock()
		return get()
	}
}

// change changes the scene while something else runs concurrently.
func (s *scene) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// dashboard returns the handler, after applying changes to the configuration.
func (s *scene) dashboard(t testing.TB, changes ...func(*app.Config)) *dashboard.Dashboard {
	t.Helper()
	config := s.config()
	for _, change := range changes {
		change(&config)
	}
	d, err := dashboard.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// hold describes a lock for a scene. Times are relative to now; zero ones are omitted from the record.
type hold struct {
	name, owner, host, purpose string
	held                       time.Duration // ago
	alert, unlock              time.Duration // ahead
	backtrace, alive           string
	attributes                 map[string]string
}

// add puts a sound lock into the scene.
func (s *scene) add(h hold) {
	fields := []metadata.Field{{Name: "uuid", Value: uuid(h.name)}}
	put := func(name, value string, ok bool) {
		if ok {
			fields = append(fields, metadata.Field{Name: name, Value: value})
		}
	}
	put("owner", h.owner, h.owner != "")
	put("hostname", h.host, h.host != "")
	put("pid", "17", h.host != "")
	put("purpose", h.purpose, h.purpose != "")
	put("backtrace", h.backtrace, h.backtrace != "")
	put("locked_at", metadata.FormatTime(s.now.Add(-h.held)), h.held != 0)
	put("alert_at", metadata.FormatTime(s.now.Add(h.alert)), h.alert != 0)
	put("auto_unlock_at", metadata.FormatTime(s.now.Add(h.unlock)), h.unlock != 0)
	put("alive", lockrecord.FormatAlive(s.now.Add(-time.Minute), h.alive), h.alive != "")
	for name, value := range h.attributes {
		put(name, value, true)
	}
	s.put(h.name, fields...)
}

// state adds a witness's statement that the holder of the lock ended a while ago.
func (s *scene) state(name string, ago time.Duration, change ...func(*metadata.Statement)) {
	s.witness(name, ago, func(r *metadata.Record, st *metadata.Statement) {
		lockrecord.AttachStatements(r, st, r.Suspicion)
	}, change...)
}

// suspect adds a witness's suspicion of that.
func (s *scene) suspect(name string, ago time.Duration, change ...func(*metadata.Statement)) {
	s.witness(name, ago, func(r *metadata.Record, st *metadata.Statement) {
		lockrecord.AttachStatements(r, r.Death, st)
	}, change...)
}

func (s *scene) witness(name string, ago time.Duration, heed func(*metadata.Record, *metadata.Statement),
	change ...func(*metadata.Statement)) {
	s.locks = slices.Clone(s.locks)
	for i, r := range s.locks {
		if r.Name != name {
			continue
		}
		code := 137
		s.revision++
		st := metadata.Statement{
			Name: name, UUID: r.UUID, Token: r.Token, Cause: metadata.CauseContainerEnded, ExitCode: &code,
			Detail: "OOMKilled", Reason: "container worker of pod billing/invoices-0 ended",
			EndedAt: metadata.Time{Time: s.now.Add(-ago)},
			Witness: metadata.WitnessKubernetes, By: "eu-1", Revision: s.revision,
			Seen: time.Hour - 2*time.Second, // the scene's clock shows an hour
		}
		for _, c := range change {
			c(&st)
		}
		stated := *r
		heed(&stated, &st)
		s.locks[i] = &stated
	}
}

// put puts a lock with exactly these fields into the scene, whatever they are.
func (s *scene) put(name string, fields ...metadata.Field) {
	s.revision++
	for i := range fields {
		fields[i].CreateRevision, fields[i].ModRevision = s.revision, s.revision
	}
	document := lockrecord.Decode(name, fields)
	document.Seen = metadata.Seen{First: time.Hour, Changed: time.Hour}
	s.documents[name] = document
	s.locks = slices.Clone(s.locks) // a new slice says that something changed
	s.locks = slices.DeleteFunc(s.locks, func(r *metadata.Record) bool { return r.Name == name })
	s.locks = append(s.locks, &document.Record)
	slices.SortFunc(s.locks, func(a, b *metadata.Record) int { return cmp.Compare(a.Name, b.Name) })
}

// uuid derives a UUID from a name.
func uuid(name string) string {
	h := uint64(1469598103934665603)
	for _, c := range []byte(name) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", h>>32, h&0xffffffff)
}

func (s *scene) wait(lock, owner string, since time.Duration) {
	w := s.waiter(lock, owner, owner+"-0", 1)
	w.Since = metadata.Time{Time: s.now.Add(-since)}
	s.queues[lock] = append(s.queues[lock], w)
}

// waiter adds a waiter to the end of the lock's queue.
func (s *scene) waiter(lock, owner, host string, pid int64) metadata.Waiter {
	w := metadata.Waiter{Name: lock, ID: owner, Revision: int64(len(s.queues[lock]) + 1)}
	w.Owner = owner
	w.Hostname = host
	w.PID = pid
	w.Purpose = "its turn"
	w.Since = metadata.Time{Time: s.now}
	w.TimeoutAt = metadata.Time{Time: s.now.Add(time.Minute)}
	return w
}

// busy is the night of the mock-up in the design: one lock expiring, two alerting, one malformed, some just held.
func busy() *scene {
	s := newScene()
	s.add(hold{name: "billing/invoice-run", owner: "billing", host: "billing-7f9c",
		purpose: "nightly invoices, tenant 41", held: 22 * time.Minute, alert: -14 * time.Minute,
		unlock: 102 * time.Second, alive: "1842 of 2210", backtrace: rubyTrace})
	s.add(hold{name: "catalog/sync/eu", owner: "catalog", host: "catalog-55d", purpose: "full sync",
		held:  48 * time.Minute,
		alert: -3 * time.Minute, unlock: 12 * time.Minute, attributes: map[string]string{"team": "core"}})
	s.add(hold{name: "drm/rotate-keys", owner: "drm", host: "drm-9", held: 4 * time.Minute, alert: 6 * time.Minute,
		unlock: 16 * time.Minute})
	s.add(hold{name: "drm/rotate-keys-2", owner: "drm", host: "drm-10", held: 190 * time.Minute,
		alert: 90 * time.Second, unlock: 3 * 24 * time.Hour})
	s.put("legacy/cron", metadata.Field{Name: "uuid", Value: uuid("legacy/cron")},
		metadata.Field{Name: "hostname", Value: "old-box"}, metadata.Field{Name: "alert_at", Value: "soon"},
		metadata.Field{Name: "auto_unlock_at", Value: metadata.FormatTime(s.now.Add(time.Hour))})
	s.wait("billing/invoice-run", "catalog", 9*time.Minute)
	s.wait("billing/invoice-run", "ops", time.Minute)
	return s
}

const rubyTrace = `app/jobs/invoice_run.rb:118:in 'perform'
/usr/local/bundle/gems/sidekiq-7.2.1/lib/sidekiq/processor.rb:202:in 'execute_job'
/usr/local/bundle/gems/sidekiq-7.2.1/lib/sidekiq/processor.rb:170:in 'process'
/usr/local/lib/ruby/3.3.0/monitor.rb:238:in 'synchronize'
`

var errAway = errors.New("timeout")

// get sends a request to the handler; headers come in pairs.
func get(d http.Handler, url string, headers ...string) *httptest.ResponseRecorder {
	return ask(d, http.MethodGet, url, headers...)
}

func ask(d http.Handler, method, url string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, url, nil)
	r.SetBasicAuth("ann", "x") // who is asked for a password gives it
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if host, is := r.Header["Host"]; is {
		r.Host = host[0]
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w
}

// ok sends a request and expects status 200.
func ok(t testing.TB, d http.Handler, url string) string {
	t.Helper()
	w := get(d, url)
	if w.Code != http.StatusOK {
		t.Fatalf("GET %s answers %d: %s", url, w.Code, words(w.Body.String()))
	}
	return w.Body.String()
}

// fetch requests JSON from the API and decodes it.
func fetch[T any](t testing.TB, d http.Handler, url string) (data T, meta map[string]any) {
	t.Helper()
	var answer struct {
		Data T              `json:"data"`
		Meta map[string]any `json:"meta"`
	}
	if err := json.Unmarshal([]byte(ok(t, d, url)), &answer); err != nil {
		t.Fatalf("GET %s: %v", url, err)
	}
	return answer.Data, answer.Meta
}

// lock is a lock in an API response.
type lock = map[string]any

// paged requests all pages of a list from the API, and returns what they list and how many there were.
func paged(t testing.TB, d http.Handler, url, list string) (all []lock, pages int, matched float64) {
	t.Helper()
	for after := ""; ; pages++ {
		data, meta := fetch[lock](t, d, url+"&after="+after)
		for _, one := range data[list].([]any) {
			all = append(all, one.(lock))
		}
		next, more := meta["next"].(string)
		if after = next; !more || pages > 99 { // a fault may have it never end
			return all, pages + 1, meta["matched"].(float64)
		}
	}
}

// names requests a list from the API and returns its names.
func names(t testing.TB, d http.Handler, url string) []string {
	t.Helper()
	data, _ := fetch[[]lock](t, d, url)
	list := make([]string, len(data))
	for i, l := range data {
		list[i] = l["name"].(string)
	}
	return list
}

// words returns the visible text of a page in one line.
func words(page string) string {
	var text strings.Builder
	script := false // inside of a button that only scripts show
	walk(page, func(token xml.Token) {
		if chars, isText := token.(xml.CharData); isText {
			if !script {
				text.Write(chars)
			}
			return
		}
		switch e := token.(type) { // what does not begin a new word
		case xml.StartElement:
			script = e.Name.Local == "button" && strings.HasSuffix(classOf(e), " js")
			if inline[e.Name.Local] || e.Name.Local == "span" && len(e.Attr) > 0 && e.Attr[0].Value == "esc" {
				return
			}
		case xml.EndElement:
			script = false
			if inline[e.Name.Local] || e.Name.Local == "span" {
				return
			}
		}
		text.WriteByte(' ')
	})
	return strings.Join(strings.Fields(text.String()), " ")
}

var inline = map[string]bool{"bdi": true, "b": true, "time": true, "a": true, "code": true}

func classOf(e xml.StartElement) string {
	for _, a := range e.Attr {
		if a.Name.Local == "class" {
			return a.Value
		}
	}
	return ""
}

// walk parses HTML and calls each for every token. The error is nil for a well-formed page.
func walk(page string, each func(xml.Token)) error {
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict = false
	d.AutoClose = xml.HTMLAutoClose
	d.Entity = xml.HTMLEntity
	for {
		token, err := d.Token()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		each(token)
	}
}

// attributes returns the values of these attributes wherever they stand.
func attributes(page string, names ...string) []string {
	var values []string
	walk(page, func(token xml.Token) {
		if e, is := token.(xml.StartElement); is {
			for _, a := range e.Attr {
				if slices.Contains(names, a.Name.Local) {
					values = append(values, a.Value)
				}
			}
		}
	})
	return values
}

func wantWords(t testing.TB, page string, sentences ...string) {
	t.Helper()
	text := words(page)
	for _, s := range sentences {
		if !strings.Contains(text, s) {
			t.Errorf("the page does not say %q; it says %s", s, text)
		}
	}
}
