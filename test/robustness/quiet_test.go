package robustness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// The leases that the programs take, in seconds. A lease of a waiter's ticket has nothing to do after its process.
const ticketTTL = 10

// comeDown ends the work in order: holders release what they have, then everything left over has to disappear by itself
// within its bound.
func (s *stage) comeDown(found func(rule, format string, args ...any)) {
	s.clearAlarms(found)
	for _, p := range s.clients {
		if !p.terminate(40 * time.Second) {
			found(ruleRun, "%s did not end in order: see %s", p.name, p.log)
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
		found(ruleRun, "etcd cannot be read after everything was repaired: %v", err)
	}
	if alarms := s.alarmed(); alarms != "" {
		found(ruleRun, "%s at the end, and nobody cleared it: no unlocker removes anything meanwhile", alarms)
	}
	if len(left) > 0 {
		found(ruleLeft, "%v after everybody ended: %v", time.Since(began).Round(time.Second), left)
	}
	s.sameView(found)
	s.size(found)
}

// clearAlarms finds the alarms that were left when every fault was repaired, and makes room, so that what is found
// after it is not a consequence of them.
func (s *stage) clearAlarms(found func(rule, format string, args ...any)) {
	if alarms := s.alarmed(); alarms != "" {
		found(ruleRun, "%s, although room was made after every fault; it is made once more", alarms)
		s.makeRoom()
	}
}

// alarmed names the alarms that etcd raises, once it answers: a token of a login may just have ended.
func (s *stage) alarmed() (alarms string) {
	s.t.Helper()
	s.until("etcd to say which alarms it raises", func(ctx context.Context) (err error) {
		alarms, err = s.alarms(ctx)
		return err
	})
	return alarms
}

// left returns what must be gone when all work has ended: records, tickets, tails, and leases of tickets.
func (s *stage) left() (all []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
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
func (s *stage) sameView(found func(rule, format string, args ...any)) {
	var last error
	for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(200 * time.Millisecond) {
		if last = s.compareViews(); last == nil {
			return
		}
	}
	found(ruleView, "%v", last)
}

func (s *stage) compareViews() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	resp, err := s.direct.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return err
	}
	var want []string
	for _, kv := range resp.Kvs {
		if k := s.layout.Parse(string(kv.Key)); k.Kind == protocol.KindField && k.ID == metadata.FieldUUID {
			want = append(want, k.Lock+" "+strconv.FormatInt(kv.CreateRevision, 10))
		}
	}
	body, err := fetch(ctx, s.addrs[s.dash], "/api/v1/locks?limit=200")
	if err != nil {
		return err
	}
	var answer struct {
		Data []struct{ Name, Token string }
		Meta struct{ Stale bool }
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return err
	}
	var got []string
	for _, l := range answer.Data {
		got = append(got, l.Name+" "+l.Token)
	}
	slices.Sort(want)
	slices.Sort(got)
	if answer.Meta.Stale || !slices.Equal(got, want) {
		return fmt.Errorf("the dashboard shows %v (stale: %v), etcd has %v", got, answer.Meta.Stale, want)
	}
	return nil
}

func fetch(ctx context.Context, addr, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status + ": " + string(body))
	}
	return body, err
}

// size checks that no unlocker grew without bound: neither its memory nor the number of its goroutines.
func (s *stage) size(found func(rule, format string, args ...any)) {
	for _, p := range s.unlockers {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		body, err := fetch(ctx, s.addrs[p], "/metrics")
		cancel()
		if err != nil {
			found(ruleRun, "%s does not serve its metrics: %v", p.name, err)
			continue
		}
		for name, most := range map[string]float64{"go_goroutines": 150, "process_resident_memory_bytes": 300 << 20} {
			value, seen := sample(string(body), name)
			if !seen || value > most {
				found(ruleLeft, "%s of %s is %v, at most %v were expected", name, p.name, value, most)
			}
		}
	}
}

// sample is the value of a metric without labels.
func sample(metrics, name string) (float64, bool) {
	for l := range strings.Lines(metrics) {
		if rest, found := strings.CutPrefix(l, name+" "); found {
			value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			return value, err == nil
		}
	}
	return 0, false
}
