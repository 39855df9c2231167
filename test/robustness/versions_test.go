package robustness

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// TestClientsOfOtherVersionsAreUnderstood lets an old client write only the required minimum, and a newer one
// everything that may have been added by then: fields, members, areas, words. All programs read what they know, show
// the rest, and harm nothing.
func TestClientsOfOtherVersionsAreUnderstood(t *testing.T) {
	t.Parallel()
	s := newScene(t, etcdtest.Start(t).Endpoint())
	s.programs("--sweep.min-warning=2s")
	moved, err := s.locker("billing").Lock(t.Context(), "moved")
	if err != nil {
		t.Fatal(err)
	}
	s.older()
	next := s.newer()
	s.shown()
	s.showsWhatIsNew()

	waits := s.wait(s.locker("waiter"), "new", 2)
	s.gone("new", "old")
	if left := s.read(s.layout.Record("new")); len(left) != 1 || string(left[0].Key) != s.layout.Record("new")+
		"stages/1" {
		t.Errorf("left of the record: %v; nobody deletes what has none of the known forms", left)
	}
	ended := s.allEndings()
	if e := ended["new"]; len(e) != 1 || e[0].Attributes["region"] != "eu" || e[0].Attributes["priority"] != "7" {
		t.Errorf("the endings of the newer record: %+v", e)
	}
	if e := ended["old"]; len(e) != 1 || e[0].Owner != "cron" {
		t.Errorf("the endings of the older record: %+v", e)
	}

	// The newer waiter has its turn first: it takes the lock, marks its ticket, works, and gives back both.
	record := s.record("new", next, time.Hour)
	s.write(append(record, clientv3.OpPut(s.layout.Ticket("new", next),
		`{"uuid":"`+next+`","holding":true,"held_as":{"part":1}}`))...)
	s.shown()
	select {
	case l := <-waits:
		t.Errorf("%q was taken twice, with token %d", l.Name(), l.Token())
	default:
	}
	token := s.tokens()["new"]
	s.write(clientv3.OpDelete(s.layout.Record("new"), clientv3.WithPrefix()),
		clientv3.OpDelete(s.layout.Ticket("new", next)))
	select {
	case l := <-waits:
		if l.Token() <= token {
			t.Errorf("a token of %d after one of %d", l.Token(), token)
		}
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
	case <-time.After(40 * time.Second):
		t.Fatal("a waiter behind a newer one does not get the lock")
	}

	s.write(clientv3.OpDelete(s.layout.Record("moved"), clientv3.WithPrefix()),
		clientv3.OpPut(s.layout.History(moved.UUID()),
			`{"lock":"moved","uuid":"`+moved.UUID()+`","ended":"transferred","ended_at":"`+
				metadata.FormatTime(time.Now())+
				`","by":"planner 9","why":"host-2 has room","to":{"host":"host-2"}}`))
	if lost := lostFor(t, moved); !lost.Certain || !strings.Contains(lost.Error(), "transferred by planner 9") {
		t.Errorf("the holder got %v", lost)
	}
	s.shown()
}

// write writes in one transaction.
func (s *stage) write(ops ...clientv3.Op) {
	s.t.Helper()
	s.until("a write", func(ctx context.Context) error {
		_, err := s.direct.Txn(ctx).Then(ops...).Commit()
		return err
	})
}

// record is the least that a record needs.
func (s *stage) record(lock, id string, life time.Duration) []clientv3.Op {
	now := time.Now()
	return []clientv3.Op{
		clientv3.OpPut(s.layout.Field(lock, metadata.FieldUUID), id),
		clientv3.OpPut(s.layout.Field(lock, metadata.FieldAlertAt), metadata.FormatTime(now.Add(life/2))),
		clientv3.OpPut(s.layout.Field(lock, metadata.FieldAutoUnlockAt), metadata.FormatTime(now.Add(life))),
	}
}

// older writes what the first clients wrote.
func (s *stage) older() {
	s.t.Helper()
	s.write(append(s.record("old", uuid.NewString(), 4*time.Second),
		clientv3.OpPut(s.layout.Field("old", "owner"), "cron"),
		clientv3.OpPut(s.layout.Unlocker("older"), `{"id":"older","now":"`+metadata.FormatTime(time.Now())+`"}`),
	)...)
}

// newer writes what later clients may write, and returns the ticket of one that waits.
func (s *stage) newer() (ticket string) {
	s.t.Helper()
	ticket = uuid.NewString()
	now := metadata.FormatTime(time.Now())
	s.write(append(s.record("new", uuid.NewString(), 8*time.Second),
		clientv3.OpPut(s.layout.Field("new", "metadata"), `{"owner":"billing","locked_at":"`+now+
			`","region":"eu","where":{"rack":4},"lanes":[1,2]}`),
		clientv3.OpPut(s.layout.Field("new", "priority"), "7"),
		clientv3.OpPut(s.layout.Record("new")+"stages/1", "extract"),
		clientv3.OpPut(s.layout.Ticket("new", ticket), `{"uuid":"`+ticket+`","owner":"reports","since":"`+now+
			`","timeout_at":null,"weights":[1,2],"class":"night"}`),
		clientv3.OpPut(s.layout.Tail("new"), ticket),
		clientv3.OpPut(s.layout.Unlocker("newer"), `{"id":"newer","version":"9.1.0","now":"`+now+
			`","revision":1,"mode":"predictive","held_back":["weather"],"load":{"cpu":0.5}}`),
		clientv3.OpPut(s.layout.Prefix()+".quorums/new", "3"),
		clientv3.OpPut(s.layout.History(uuid.NewString()), `{"lock":"elsewhere","ended":"transferred","ended_at":"`+now+
			`","by":"planner 9","to":{"host":"host-2"}}`),
	)...)
	return ticket
}

// showsWhatIsNew expects the dashboard to show the newer record with its unknown parts, and all pages to work.
func (s *stage) showsWhatIsNew() {
	s.t.Helper()
	var shown struct {
		Data struct {
			State, Owner string
			Attributes   map[string]any
			Queue        []struct{ Owner string }
		}
	}
	s.until("the newer lock on the dashboard", func(ctx context.Context) error {
		body, err := fetch(ctx, s.addrs[s.dash], "/api/v1/lock?name=new")
		if err != nil {
			return err
		}
		return json.Unmarshal(body, &shown)
	})
	d := shown.Data
	if d.State == "malformed" || d.Owner != "billing" || d.Attributes["region"] != "eu" ||
		d.Attributes["priority"] != "7" || len(d.Queue) != 1 || d.Queue[0].Owner != "reports" {
		s.t.Errorf("the dashboard shows %+v", d)
	}
	for _, page := range []string{"/", "/lock?name=" + url.QueryEscape("new"), "/waiting", "/history", "/owners",
		"/status"} {
		s.until(page, func(ctx context.Context) error {
			_, err := fetch(ctx, s.addrs[s.dash], page)
			return err
		})
	}
}
