package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

// operation is a dashboard on a real etcd, behind a network that can go bad.
type operation struct {
	*dashboard.Dashboard
	t      *testing.T
	proxy  *etcdtest.Proxy
	etcd   *clientv3.Client // beside the dashboard, on a good network
	store  *lockstore.Store
	layout protocol.Layout
	before func(context.Context) context.Context // called just before the transaction is sent
}

func operate(t *testing.T) *operation {
	t.Helper()
	server := etcdtest.Start(t)
	o := &operation{t: t, proxy: etcdtest.NewProxy(t, server.Endpoint()), etcd: server.Client(t),
		before: func(ctx context.Context) context.Context { return ctx }}
	far, err := clientv3.New(clientv3.Config{Endpoints: []string{o.proxy.Endpoint()}, MaxUnaryRetries: 1,
		Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	config := newScene().config()
	o.layout = config.Layout
	o.store = lockstore.New(far, config.Layout)
	config.Now = time.Now
	from := of(&config)
	from.shown = func() []*metadata.Record { return nil }
	config.Access = behindProxy(t)
	from.fresh = func() protocol.Freshness { return protocol.Freshness{Synced: true, Heard: time.Now()} }
	from.get, from.ending = o.store.Get, o.store.Ending
	config.Operator = o
	config.Enabled.Unlock = true
	if o.Dashboard, err = dashboard.New(config); err != nil {
		t.Fatal(err)
	}
	return o
}

// Do implements [setup.Operator].
func (o *operation) Do(ctx context.Context, v protocol.Verb, on protocol.Subject,
	a protocol.Action) (protocol.Outcome, error) {
	return o.store.Do(o.before(ctx), v, on, a)
}

// take writes the record of a hold and returns what a person who looks at it sends to end it.
func (o *operation) take(lock, id, owner string) url.Values {
	o.t.Helper()
	now := time.Now()
	fields, err := metadata.Draft{UUID: id,
		Holder:   metadata.Holder{Owner: owner, Hostname: owner + "-0", PID: 7, Purpose: "invoices"},
		LockedAt: now,
		AlertAt:  now.Add(time.Hour), AutoUnlockAt: now.Add(2 * time.Hour)}.Fields()
	if err != nil {
		o.t.Fatal(err)
	}
	var ops []clientv3.Op
	for _, f := range fields {
		ops = append(ops, clientv3.OpPut(o.layout.Field(lock, f.Name), f.Value))
	}
	resp, err := o.etcd.Txn(o.t.Context()).Then(ops...).Commit()
	if err != nil {
		o.t.Fatal(err)
	}
	revision := strconv.FormatInt(resp.Header.Revision, 10)
	return url.Values{"hold": {id}, "token": {revision}, "revision": {revision}, "typed": {lock},
		"reason": {"the pod is dead, node lost"}}
}

func (o *operation) put(key, value string) {
	if _, err := o.etcd.Put(context.WithoutCancel(o.t.Context()), key, value); err != nil {
		o.t.Error(err)
	}
}

func (o *operation) release(lock string) {
	if _, err := o.etcd.Delete(o.t.Context(), o.layout.Record(lock), clientv3.WithPrefix()); err != nil {
		o.t.Error(err)
	}
}

func (o *operation) unlock(who, lock string, form url.Values) *httptest.ResponseRecorder {
	return post(o, who, "/unlock?name="+lock+"&hold="+form.Get("hold"), form)
}

// trail is the audit trail.
func (o *operation) trail() []protocol.Action {
	actions, err := o.store.Audit(o.t.Context(), 100)
	if err != nil {
		o.t.Fatal(err)
	}
	return actions
}

func (o *operation) holder(lock string) string {
	document, _, err := o.store.Get(o.t.Context(), lock)
	if err != nil {
		o.t.Fatal(err)
	}
	return document.Owner
}

var one, two = uuid("one"), uuid("two")

func TestForceUnlockOfAHoldThatWasExtendedMeanwhile(t *testing.T) {
	o := operate(t)
	form := o.take("a", one, "billing")
	o.put(o.layout.Field("a", metadata.FieldAutoUnlockAt), metadata.FormatTime(time.Now().Add(9*time.Hour)))
	if w := o.unlock("chief", "a", form); w.Code != http.StatusSeeOther || o.holder("a") != "" {
		t.Errorf("the person named the hold, yet the answer is %d %s", w.Code, words(w.Body.String()))
	}
	trail := o.trail()
	if len(trail) != 1 || trail[0].Actor != "chief" || fmt.Sprint(trail[0].Revision) != form.Get("revision") {
		t.Errorf("the audit trail is %+v", trail)
	}
}

func TestForceUnlockOfAHoldThatIsOver(t *testing.T) {
	o := operate(t)
	n := 0
	for name, c := range map[string]struct {
		next, owner string // the hold that follows; empty: there is none
		says        string
	}{
		"released":              {"", "", "Nobody holds the lock now."},
		"re-acquired":           {two, "catalog", "now held by catalog on catalog-0:7"},
		"re-acquired as before": {one, "billing", "now held by billing on billing-0:7"},
	} {
		for _, at := range []string{"before the check", "between check and transaction"} {
			lock := name + " " + at
			form := o.take(lock, one, "billing")
			meanwhile := func(ctx context.Context) context.Context {
				if o.release(lock); c.next != "" {
					o.take(lock, c.next, c.owner)
				}
				return ctx
			}
			o.before = func(ctx context.Context) context.Context { return ctx }
			if at == "before the check" {
				meanwhile(t.Context())
			} else {
				o.before = meanwhile
			}
			w := o.unlock("chief", url.QueryEscape(lock), form)
			if w.Code != http.StatusConflict || o.holder(lock) != c.owner || len(o.trail()) != 0 {
				t.Errorf("%s: the answer is %d, the holder %q, the audit trail %v", lock, w.Code, o.holder(lock),
					o.trail())
			}
			wantWords(t, w.Body.String(), "Not done", "Nothing was done.", c.says)
			n++
			wantForced(t, o.Dashboard, 0, n, 0, 0)
		}
	}
}

func TestForceUnlockByTwoPeopleAtOnce(t *testing.T) {
	o := operate(t)
	for round := range 5 {
		lock := fmt.Sprint("lock-", round)
		form := o.take(lock, uuid(lock), "billing")
		codes := map[string]int{}
		var mu sync.Mutex
		var both sync.WaitGroup
		for _, who := range []string{"chief", "unlocker"} {
			both.Go(func() {
				w := o.unlock(who, lock, form)
				mu.Lock()
				defer mu.Unlock()
				if codes[who] = w.Code; w.Code == http.StatusConflict && !strings.Contains(w.Body.String(),
					"force-unlocked by") {
					t.Errorf("the second one is not told of the first: %s", words(w.Body.String()))
				}
			})
		}
		both.Wait()
		trail := o.trail()
		if codes["chief"]+codes["unlocker"] != http.StatusSeeOther+http.StatusConflict || len(trail) != round+1 ||
			codes[trail[0].Actor] != http.StatusSeeOther {
			t.Errorf("the answers are %v, the audit trail is %+v", codes, trail)
		}
	}
}

func TestForceUnlockWhoseAnswerGotLostIsNotDoneTwice(t *testing.T) {
	t.Parallel()
	o := operate(t)
	// leases are there
	if w := o.unlock("chief", "warm", o.take("warm", two, "billing")); w.Code != http.StatusSeeOther {
		t.Fatalf("the answer is %d", w.Code)
	}
	form := o.take("a", one, "billing")
	o.before = func(ctx context.Context) context.Context {
		o.proxy.DropAnswers()
		time.AfterFunc(time.Second, o.proxy.Heal)
		ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	w := o.unlock("chief", "a", form)
	if w.Code != http.StatusSeeOther || o.holder("a") != "" || len(o.trail()) != 2 {
		t.Errorf("the answer is %d %s, the audit trail is %+v", w.Code, words(w.Body.String()), o.trail())
	}
	wantForced(t, o.Dashboard, 2, 0, 0, 0)
}

func TestForceUnlockOfUnknownOutcomeIsLookedAtAgain(t *testing.T) {
	for name, c := range map[string]struct {
		really func(s *scene, r *metadata.Record, ours metadata.Ending)
		status int
		says   string
	}{
		"done all the same": {func(s *scene, r *metadata.Record, ours metadata.Ending) {
			s.endings[r.UUID] = &ours
			delete(s.documents, stuck)
		}, http.StatusSeeOther, "Done."},
		"still there": {func(*scene, *metadata.Record, metadata.Ending) {}, http.StatusGatewayTimeout,
			"The hold is still there, but the request may still be on its way."},
		"nobody can tell": {func(s *scene, _ *metadata.Record, _ metadata.Ending) { s.away = errAway },
			http.StatusGatewayTimeout,
			"Look at the lock before you try again."},
		"somebody else did": {func(s *scene, r *metadata.Record, other metadata.Ending) {
			other.By = "bob"
			s.endings[r.UUID] = &other
			delete(s.documents, stuck)
		}, http.StatusConflict, "force-unlocked by bob"},
	} {
		t.Run(name, func(t *testing.T) {
			s := busy()
			asked := 0
			d, _ := operated(t, s, func(config *setup.Config) {
				operates(config, func(on protocol.Subject, a protocol.Action) error {
					asked++
					c.really(s, on.Hold, protocol.Forced(on.Hold, a, on.Follows).Ending)
					return fmt.Errorf("%w: timeout", protocol.ErrUnknown)
				}, protocol.ActionForceUnlock)
			})
			w := post(d, "chief", unlockLink(s, stuck), s.wanted(stuck))
			if w.Code != c.status || asked != 1 || !strings.Contains(words(w.Body.String()), c.says) {
				t.Errorf("the answer is %d after %d tries: %s", w.Code, asked, words(w.Body.String()))
			}
		})
	}
}
