package robustness

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// The leases that the programs take, in seconds. A lease of a waiter's ticket has nothing to do after its process.
const ticketTTL = 10

// comeDown winds down in order: holders release their locks, then all leftovers have to disappear within their bounds.
func (s *stage) comeDown() {
	s.clearAlarms()
	for _, p := range s.clients {
		if !p.terminate(40 * time.Second) {
			s.found(ruleRun, "%s did not end in order: see %s", p.name, p.log)
			p.kill()
		}
	}
	s.keepers.end()
	began := time.Now()
	// The longest that anything may take from here on: a ticket's lease, which a new leader of etcd counts anew, or a
	// lock whose warning just began.
	const most = 35 * time.Second
	left := []string{"not read"}
	err := error(nil)
	for time.Since(began) < most && (len(left) > 0 || err != nil) {
		time.Sleep(100 * time.Millisecond)
		left, err = s.left()
	}
	if err != nil {
		s.found(ruleRun, "etcd cannot be read after everything was repaired: %v", err)
	}
	if alarms := s.alarmed(); alarms != "" {
		s.found(ruleRun, "%s at the end, and nobody cleared it: no unlocker removes anything meanwhile", alarms)
	}
	if len(left) > 0 {
		s.found(ruleLeft, "%v after everybody ended: %v", time.Since(began).Round(time.Second), left)
	}
	s.sameView()
	s.size()
}

// clearAlarms finds the alarms that remain after all repairs and makes room, so that later findings are not their
// consequence.
func (s *stage) clearAlarms() {
	if alarms := s.alarmed(); alarms != "" {
		s.found(ruleRun, "%s, although room was made after every fault; it is made once more", alarms)
		s.makeRoom()
	}
}

// alarmed names the alarms that etcd raises, once it answers: a token of a login may just have ended.
func (s *stage) alarmed() (alarms string) {
	s.until("etcd to say which alarms it raises", func(ctx context.Context) (err error) {
		alarms, err = s.alarms(ctx)
		return err
	})
	return alarms
}

// left returns leftovers that must be gone after all work: records, tickets, tails, and leases of tickets.
func (s *stage) left() (all []string, err error) {
	ctx, cancel := timeout(5 * time.Second)
	defer cancel()
	resp, err := s.direct.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	for _, kv := range resp.Kvs {
		switch s.layout.Parse(string(kv.Key)).Kind {
		case protocol.KindHistory, protocol.KindAudit, protocol.KindUnlocker, protocol.KindCancelled,
			protocol.KindPeriod, protocol.KindTask, protocol.KindDeath, protocol.KindSuspicion:
		default:
			all = append(all, string(kv.Key))
		}
	}
	leases, err := s.direct.Leases(ctx)
	if err != nil {
		return nil, err
	}
	for _, l := range leases.Leases {
		ttl, err := s.direct.TimeToLive(ctx, l.ID, clientv3.WithAttachedKeys())
		if err != nil {
			return nil, err
		}
		if ttl.TTL > 0 && ttl.GrantedTTL == ticketTTL {
			all = append(all, fmt.Sprintf("lease %x of %d s with %d keys", l.ID, ttl.GrantedTTL, len(ttl.Keys)))
		}
	}
	return all, nil
}

// sameView puts a few locks into etcd and expects the dashboard to show exactly those.
func (s *stage) sameView() {
	var last error
	for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(200 * time.Millisecond) {
		if last = s.compareViews(); last == nil {
			return
		}
	}
	s.found(ruleView, "%v", last)
}

func (s *stage) compareViews() error {
	ctx, cancel := timeout(5 * time.Second)
	defer cancel()
	held, err := s.held(ctx)
	if err != nil {
		return err
	}
	body, err := fetch(s.dash.addr, "/api/v1/locks?limit=200")
	if err != nil {
		return err
	}
	var answer struct {
		Data []struct {
			Name  string
			Token int64 `json:",string"`
		}
		Meta struct{ Stale bool }
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		return err
	}
	shown := map[string]int64{}
	for _, l := range answer.Data {
		shown[l.Name] = l.Token
	}
	if answer.Meta.Stale || len(answer.Data) != len(held) || !maps.Equal(shown, held) {
		return fmt.Errorf("the dashboard shows %v (stale: %v), etcd has %v", answer.Data, answer.Meta.Stale, held)
	}
	return nil
}

func fetch(addr, path string) (body string, err error) {
	status, body, err := proctest.Get(&http.Client{}, "http://"+addr+path)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%d: %s", status, body)
	}
	return body, err
}

func (s *stage) size() {
	for _, p := range s.unlockers {
		for name, most := range map[string]float64{"go_goroutines": 150, "process_resident_memory_bytes": 300 << 20} {
			if value, err := proctest.Metric(p.addr, name); err != nil || value > most {
				s.found(ruleLeft, "%s of %s is %v, at most %v were expected: %v", name, p.name, value, most, err)
			}
		}
	}
}

// TestRunEndingWithAnAlarmReportsIt fills etcd and makes no room: the end of the run reports the alarm and makes room,
// so that the other checks are meaningful.
func TestRunEndingWithAnAlarmReportsIt(t *testing.T) {
	t.Parallel()
	s := newStage(t, config{Seed: 1, Nodes: 1, World: plainWorld}, t.TempDir())
	s.members = etcdtest.Cluster(t, 1, s.options()...)
	s.record()
	if _, done := s.fill(); !done {
		t.Fatal("etcd was not filled")
	}
	if alarms := s.alarmed(); !strings.Contains(alarms, "NOSPACE at member") {
		t.Fatalf("a full etcd raises no alarm: %q", alarms)
	}
	var violations []violation
	s.found = collect(&violations)
	s.clearAlarms()
	if len(violations) != 1 || !strings.Contains(violations[0].Text, "NOSPACE at member") {
		t.Errorf("the run says nothing of the alarm: %v", violations)
	}
	if alarms := s.alarmed(); alarms != "" {
		t.Errorf("no room was made: %s", alarms)
	}
}
