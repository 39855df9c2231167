package robustness

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// TestMembersAreReplacedOneByOne replaces every member of etcd by one at another address. Programs know the endpoints
// that they were given: one of them that is left is enough, and without any they stop in time, until they are restarted
// with new ones. A client whose connection to etcd follows its members needs none of that.
func TestMembersAreReplacedOneByOne(t *testing.T) {
	t.Parallel()
	m := etcdtest.Cluster(t, 3)
	s := newScene(t, m.Endpoints()...)
	s.programs()
	given := s.client(s.given)
	s.work(given)
	follows := following(t, s.given)
	library, err := mutex.New(follows, mutex.Options{Owner: "follower"})
	proctest.Must(t, err)
	defer library.Close()
	follower, err := library.Lock(t.Context(), "followed", mutex.Heartbeat(time.Hour),
		mutex.AutoUnlockAfter(20*time.Second))
	proctest.Must(t, err)
	m.Replace(t, 0)
	m.Replace(t, 1)
	s.direct = s.client(m.Endpoints())
	s.stillServed("one endpoint is left")

	stuck := s.take("stuck", mutex.Heartbeat(time.Hour), mutex.AutoUnlockAfter(3*time.Second))
	given.SetEndpoints(m.Endpoints()[:2]...) // of the keepers: what a program does that is told of new ones
	m.Replace(t, 2)
	s.direct = s.client(m.Endpoints())
	s.stopsInTime(stuck)
	for i, p := range s.unlockers {
		s.metric(p, "unlocker_etcd_up", 0)
		s.given = m.Endpoints()
		s.restartUnlocker(i)
	}
	s.dash.kill()
	s.startDash()
	s.stillServed("new endpoints")
	proctest.Must(t, follower.Alive(t.Context()))
	proctest.Must(t, follower.Unlock())
}

// stopsInTime expects a holder that cannot ask etcd to end by its own clock, before anybody else may have the lock.
func (s *stage) stopsInTime(l *mutex.Lock) {
	if lost, due := lostFor(s.t, l), s.deadline(l.Name()); lost.Certain || lost.At.After(due) {
		s.t.Errorf("the holder that is cut off stops at %v, for certain: %v; its deadline is %v", lost.At, lost.Certain,
			due)
	}
}

// following is a connection that asks etcd for its members now and then, and talks to those.
func following(t *testing.T, endpoints []string) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, MaxUnaryRetries: 1, Logger: zap.NewNop(), DialTimeout: time.Second,
		AutoSyncInterval: 500 * time.Millisecond,
	})
	proctest.Must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// stillServed expects a waiter to get the lock of a dead holder, through the unlockers, and the dashboard to show the
// locks.
func (s *stage) stillServed(lock string) {
	s.t.Helper()
	s.stale(lock, time.Second)
	proctest.Must(s.t, s.take(lock).Unlock())
	if e := s.allEndings()[lock]; len(e) != 1 {
		s.t.Errorf("%q has these endings: %+v", lock, e)
	}
	s.sameView()
}

func (s *stage) deadline(lock string) time.Time {
	s.t.Helper()
	kvs := s.read(s.layout.Field(lock, metadata.FieldAutoUnlockAt))
	if len(kvs) != 1 {
		s.t.Fatalf("%q has no deadline", lock)
	}
	at, err := metadata.ParseTime(string(kvs[0].Value))
	proctest.Must(s.t, err)
	return at
}

// TestClientsOfOtherVersionsAreUnderstood lets an old client write only the required minimum, and a newer one
// everything that may have been added by then: fields, members, areas, words. All programs read what they know, show
// the rest, and harm nothing.
func TestClientsOfOtherVersionsAreUnderstood(t *testing.T) {
	t.Parallel()
	s := newScene(t, etcdtest.Start(t).Endpoint())
	s.programs("--sweep.min-warning=2s")
	moved := s.take("moved")
	s.older()
	next := s.newer()
	s.sameView()
	s.showsWhatIsNew()

	waits := s.wait("new", 2)
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
	record := s.least("new", next, time.Hour)
	s.write(append(record, clientv3.OpPut(s.layout.Ticket("new", next),
		`{"uuid":"`+next+`","holding":true,"held_as":{"part":1}}`))...)
	s.sameView()
	select {
	case l := <-waits:
		t.Errorf("%q was taken twice, with token %d", l.Name(), l.Token())
	default:
	}
	token := s.tokens()["new"]
	s.write(clientv3.OpDelete(s.layout.Record("new"), clientv3.WithPrefix()),
		clientv3.OpDelete(s.layout.Ticket("new", next)))
	s.passed(waits, token)

	s.write(clientv3.OpDelete(s.layout.Record("moved"), clientv3.WithPrefix()),
		clientv3.OpPut(s.layout.History(moved.UUID()),
			`{"lock":"moved","uuid":"`+moved.UUID()+`","ended":"transferred","ended_at":"`+
				metadata.FormatTime(time.Now())+
				`","by":"planner 9","why":"host-2 has room","to":{"host":"host-2"}}`))
	if lost := lostFor(t, moved); !lost.Certain || !strings.Contains(lost.Error(), "transferred by planner 9") {
		t.Errorf("the holder got %v", lost)
	}
	s.sameView()
}

func (s *stage) write(ops ...clientv3.Op) {
	s.t.Helper()
	s.until("a write", func(ctx context.Context) error {
		_, err := s.direct.Txn(ctx).Then(ops...).Commit()
		return err
	})
}

func (s *stage) least(lock, id string, life time.Duration) []clientv3.Op {
	now := time.Now()
	return []clientv3.Op{
		clientv3.OpPut(s.layout.Field(lock, metadata.FieldUUID), id),
		clientv3.OpPut(s.layout.Field(lock, metadata.FieldAlertAt), metadata.FormatTime(now.Add(life/2))),
		clientv3.OpPut(s.layout.Field(lock, metadata.FieldAutoUnlockAt), metadata.FormatTime(now.Add(life))),
	}
}

func (s *stage) older() {
	s.write(append(s.least("old", uuid.NewString(), 4*time.Second),
		clientv3.OpPut(s.layout.Field("old", "owner"), "cron"),
		clientv3.OpPut(s.layout.Unlocker("older"), `{"id":"older","now":"`+metadata.FormatTime(time.Now())+`"}`),
	)...)
}

// newer writes what later clients may write, and returns the ticket of one that waits.
func (s *stage) newer() (ticket string) {
	ticket = uuid.NewString()
	now := metadata.FormatTime(time.Now())
	s.write(append(s.least("new", uuid.NewString(), 8*time.Second),
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
	var shown struct {
		Data struct {
			State, Owner string
			Attributes   map[string]any
			Queue        []struct{ Owner string }
		}
	}
	body := proctest.Answers(s.t, "http://"+s.dash.addr+"/api/v1/lock?name=new", 200)
	proctest.Must(s.t, json.Unmarshal([]byte(body), &shown))
	d := shown.Data
	if d.State == "malformed" || d.Owner != "billing" || d.Attributes["region"] != "eu" ||
		d.Attributes["priority"] != "7" || len(d.Queue) != 1 || d.Queue[0].Owner != "reports" {
		s.t.Errorf("the dashboard shows %+v", d)
	}
	for _, page := range []string{"/", "/lock?name=new", "/waiting", "/history", "/owners", "/status"} {
		proctest.Answers(s.t, "http://"+s.dash.addr+page, 200)
	}
}
