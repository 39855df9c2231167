package robustness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// faultDone is a past fault.
type faultDone struct {
	name     string
	from, to int64
	sweep    bool // it keeps unlockers from removing, or gives them reason to wait
}

// fault is something that can be broken. do returns what repairs it; nil where it could not be broken at the moment, or
// where there is nothing to repair.
type fault struct {
	name   string
	weight int
	most   time.Duration // how long it lasts at most
	sweep  bool
	do     func(s *stage) (repair func(), done bool)
}

// open is a fault that lasts.
type open struct {
	fault
	index  int
	until  time.Time
	repair func()
}

// breakThings breaks one thing after another, some of them at the same time, and repairs them again.
func (s *stage) breakThings(ctx context.Context) {
	all := allFaults(s.World, s.Nodes)
	if s.witness != nil {
		all = append(all, witnessFaults()...)
	}
	faults := slices.DeleteFunc(all,
		func(f fault) bool { return slices.Contains(s.Without, f.name) || s.Calm && f.sweep })
	for i, f := range faults {
		if slices.Contains(s.Favour, f.name) {
			faults[i].weight *= 10
		}
	}
	var now []open
	for ctx.Err() == nil {
		now = s.repairSome(now, time.Now())
		if len(now) < 3 {
			now = s.breakOne(faults, now)
		}
		sleep(ctx, 150*time.Millisecond+time.Duration(s.rand.Int64N(int64(900*time.Millisecond))))
	}
	s.repairSome(now, time.Now().Add(time.Hour))
	s.repairAll()
}

func (s *stage) breakOne(faults []fault, now []open) []open {
	total := 0
	for _, f := range faults {
		total += f.weight
	}
	n := s.rand.IntN(total)
	i := slices.IndexFunc(faults, func(f fault) bool { n -= f.weight; return n < 0 })
	f := faults[i]
	from := stamp()
	repair, done := f.do(s)
	if !done {
		return now
	}
	s.counts[f.name]++
	s.faults = append(s.faults, faultDone{name: f.name, from: from, to: stamp(), sweep: f.sweep})
	if repair == nil {
		return now
	}
	last := 200*time.Millisecond + time.Duration(s.rand.Int64N(int64(f.most)))
	return append(now, open{f, len(s.faults) - 1, time.Now().Add(last), repair})
}

func (s *stage) repairSome(now []open, at time.Time) []open {
	return slices.DeleteFunc(now, func(o open) bool {
		if at.Before(o.until) {
			return false
		}
		o.repair()
		s.faults[o.index].to = stamp()
		return true
	})
}

// repairAll makes everything work again.
func (s *stage) repairAll() {
	for _, p := range slices.Concat(s.ours, s.theirs) {
		p.Heal()
	}
	for i := range s.down {
		s.up(i)
	}
	s.members.WaitReady(s.t)
	for _, p := range slices.Concat(s.clients, s.unlockers, []*child{s.dash}) {
		p.resume()
	}
	if s.witness != nil {
		s.witness.resume()
	}
	for _, w := range slices.Concat(s.wires, s.theirsW) {
		for name, n := range w.done() {
			s.counts[name] += n
		}
	}
}

// up brings a member back, however it went.
func (s *stage) up(i int) {
	s.members.Resume(i)
	if s.down[i] {
		s.members.Restart(i)
		s.down[i] = false
	}
}

// kinds of faults of one world.
func allFaults(world string, nodes int) []fault {
	all := []fault{
		{"etcd: member killed", 6, 3 * time.Second, true, (*stage).killMember},
		{"etcd: member stands still", 5, 3 * time.Second, true, (*stage).pauseMember},
		{"etcd: all members stand still", 2, 6 * time.Second, true, (*stage).pauseAll},
		{"etcd: out of space", 2, 2 * time.Second, true, (*stage).fill},
		{"etcd: compacted", 6, 0, false, (*stage).compact},
		{"everything restarted", 1, 0, true, (*stage).restartAll},
		{"network of holders: cut", 4, 1500 * time.Millisecond, false, onNet(ours, (*etcdtest.Proxy).Cut)},
		{"network of holders: silent", 4, 2 * time.Second, false, onNet(ours, (*etcdtest.Proxy).Stall)},
		{"network of holders: answers lost", 4, 2 * time.Second, false, onNet(ours, (*etcdtest.Proxy).DropAnswers)},
		{"network of holders: slow", 4, 2 * time.Second, false, onNet(ours, slow)},
		{"network of unlockers: cut", 3, 1500 * time.Millisecond, true, onNet(theirs, (*etcdtest.Proxy).Cut)},
		{"network of unlockers: silent", 3, 2 * time.Second, true, onNet(theirs, (*etcdtest.Proxy).Stall)},
		{"network of unlockers: answers lost", 3, 2 * time.Second, true, onNet(theirs, (*etcdtest.Proxy).DropAnswers)},
		{"network of unlockers: slow", 3, 2 * time.Second, true, onNet(theirs, slow)},
		{"client killed", 4, 0, false, (*stage).killClient},
		{"client stands still", 5, 6 * time.Second, false, (*stage).pauseClient},
		{"unlocker killed", 3, 2 * time.Second, true, (*stage).killUnlocker},
		{"unlocker's clock off", 4, 4 * time.Second, true, (*stage).jumpClock},
		{"unlocker stands still", 3, 6 * time.Second, true, (*stage).pauseUnlocker},
		{"dashboard killed", 1, 0, false, (*stage).killDash},
		{"lock forced", 5, 0, false, (*stage).force},
		{"lock and its queue deleted by hand", 4, 0, false, (*stage).wipe},
	}
	if nodes > 1 {
		all = append(all, fault{"etcd: leader killed", 5, 3 * time.Second, true, (*stage).killLeader},
			fault{"etcd: leader changed", 4, 0, true, (*stage).moveLeader})
	}
	switch world {
	case loginWorld:
		all = append(all, fault{"login: all tokens ended", 8, 0, true, (*stage).endTokens})
	case certificatesWorld:
		all = append(all, fault{"certificates replaced", 8, 0, true, (*stage).rotate})
	}
	if *disksFlag {
		all = append(all, fault{"etcd: disk hangs", 10, 4 * time.Second, true, (*stage).hangDisk})
	}
	return all
}

// spare is a member that can go without taking the majority along; any, where there is but one.
func (s *stage) spare() (int, bool) {
	if slices.Contains(s.down, true) {
		return 0, false
	}
	return s.rand.IntN(s.Nodes), true
}

func (s *stage) killMember() (func(), bool) {
	i, free := s.spare()
	if !free {
		return nil, false
	}
	return s.killOf(i), true
}

func (s *stage) killOf(i int) func() {
	s.members.Kill(i)
	s.down[i] = true
	return func() { s.up(i) }
}

func (s *stage) pauseMember() (func(), bool) {
	i, free := s.spare()
	if !free {
		return nil, false
	}
	s.members.Pause(i)
	s.down[i] = true
	return func() {
		s.members.Resume(i)
		s.down[i] = false
	}, true
}

func (s *stage) pauseAll() (func(), bool) {
	if slices.Contains(s.down, true) {
		return nil, false
	}
	for i := range s.down {
		s.members.Pause(i)
		s.down[i] = true
	}
	return func() {
		for i := range s.down {
			s.members.Resume(i)
			s.down[i] = false
		}
	}, true
}

// leader is the member that leads.
func (s *stage) leader() (int, uint64, bool) {
	var ids []uint64
	leads := uint64(0)
	for _, e := range s.members.Endpoints() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		status, err := s.direct.Status(ctx, e)
		cancel()
		if err != nil {
			return 0, 0, false
		}
		ids, leads = append(ids, status.Header.MemberId), status.Leader
	}
	i := slices.Index(ids, leads)
	if i < 0 {
		return 0, 0, false
	}
	return i, ids[(i+1)%len(ids)], true
}

func (s *stage) killLeader() (func(), bool) {
	if _, free := s.spare(); !free {
		return nil, false
	}
	i, _, found := s.leader()
	if !found {
		return nil, false
	}
	return s.killOf(i), true
}

func (s *stage) moveLeader() (func(), bool) {
	if _, free := s.spare(); !free {
		return nil, false
	}
	i, next, found := s.leader()
	if !found {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	to := s.client(s.members.Endpoints()[i : i+1])
	defer to.Close()
	_, err := to.MoveLeader(ctx, next)
	return nil, err == nil
}

// fill fills etcd until it takes no more. Mending makes room, as an operator would.
func (s *stage) fill() (func(), bool) {
	megabyte := strings.Repeat("x", 1<<20)
	for i := range 2 * quota >> 20 { // etcd counts what it has committed to the disk, so the quota is not the end
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		_, err := s.direct.Put(ctx, fmt.Sprint(fillPrefix, i), megabyte)
		cancel()
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return s.makeRoom, true
		}
		if err != nil {
			break
		}
	}
	return s.makeRoom, true
}

// makeRoom deletes, compacts, defragments and disarms, again and again until etcd takes writes. It needs all members:
// one that comes back later with a full disk would raise the alarm again. For the same reason it believes no
// defragmentation, but looks at the size of every member afterwards.
func (s *stage) makeRoom() {
	for i := range s.down {
		s.up(i)
	}
	s.until("etcd to take writes again", func(ctx context.Context) error {
		gone, err := s.direct.Delete(ctx, fillPrefix, clientv3.WithPrefix())
		if err != nil {
			return err
		}
		// A compaction keeps what was there at its revision: one revision earlier would keep all that was deleted.
		for s.recorder.at() < gone.Header.Revision && ctx.Err() == nil {
			sleep(ctx, 20*time.Millisecond)
		}
		s.compactTo(ctx, true)
		if err := s.caughtUp(ctx); err != nil {
			return err
		}
		for _, e := range s.members.Endpoints() {
			if _, err := s.direct.Defragment(ctx, e); err != nil {
				return err
			}
		}
		if err := s.roomy(ctx); err != nil {
			return err
		}
		if _, err := s.direct.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
			return err
		}
		if _, err = s.direct.Put(ctx, fillPrefix, ""); err != nil {
			return err
		}
		alarms, err := s.alarms(ctx)
		if err == nil && alarms != "" {
			err = errors.New(alarms)
		}
		return err
	})
}

// roomy is an error where a member is still large. A follower compacts when it likes, and its defragmentation keeps
// what is not compacted yet.
func (s *stage) roomy(ctx context.Context) error {
	for _, e := range s.members.Endpoints() {
		status, err := s.direct.Status(ctx, e)
		if err != nil {
			return err
		}
		if status.DbSize > quota/2 {
			return fmt.Errorf("%s still has %d MiB of its quota of %d MiB after its defragmentation", e,
				status.DbSize>>20, quota>>20)
		}
	}
	return nil
}

// alarms names the alarms that etcd raises, and the size of every member; empty where there are none.
func (s *stage) alarms(ctx context.Context) (string, error) {
	r, err := s.direct.AlarmList(ctx)
	if err != nil || len(r.Alarms) == 0 {
		return "", err
	}
	var raised []string
	for _, a := range r.Alarms {
		raised = append(raised, fmt.Sprintf("%v at member %x", a.Alarm, a.MemberID))
	}
	for _, e := range s.members.Endpoints() {
		if status, err := s.direct.Status(ctx, e); err == nil {
			raised = append(raised, fmt.Sprintf("member %x has %d of %d MiB", status.Header.MemberId,
				status.DbSize>>20, quota>>20))
		}
	}
	return "etcd raises an alarm: " + strings.Join(raised, ", "), nil
}

// caughtUp waits until every member has applied all that any of them had in its log: one that is behind, and has still
// to delete and to compact, would raise the alarm again after its defragmentation.
func (s *stage) caughtUp(ctx context.Context) error {
	var newest uint64
	for round := 0; ; round++ {
		behind := false
		for _, e := range s.members.Endpoints() {
			status, err := s.direct.Status(ctx, e)
			if err != nil {
				return err
			}
			if round == 0 {
				newest = max(newest, status.RaftIndex)
			}
			behind = behind || status.RaftAppliedIndex < newest
		}
		if round > 0 && !behind {
			return nil
		}
		sleep(ctx, 20*time.Millisecond)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (s *stage) compact() (func(), bool) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.compactTo(ctx, false)
	return nil, true
}

// compactTo compacts all that is recorded: to compact more would tear a hole into what is checked.
func (s *stage) compactTo(ctx context.Context, physical bool) {
	var options []clientv3.CompactOption
	if physical {
		options = append(options, clientv3.WithCompactPhysical())
	}
	s.direct.Compact(ctx, s.recorder.at(), options...)
}

func (s *stage) restartAll() (func(), bool) {
	if slices.Contains(s.down, true) {
		return nil, false
	}
	for i := range s.down {
		s.members.Kill(i)
	}
	for i, p := range s.unlockers {
		if p.Running() {
			p.kill()
			s.former = append(s.former, p)
		}
		s.unlockers[i] = s.startUnlocker(i)
	}
	s.killClient()
	s.killDash()
	for i := range s.down {
		s.members.Restart(i)
	}
	return nil, true
}

func ours(s *stage) []*etcdtest.Proxy   { return s.ours }
func theirs(s *stage) []*etcdtest.Proxy { return s.theirs }

func slow(p *etcdtest.Proxy) { p.Delay(300 * time.Millisecond) }

// onNet breaks the way to one member, or, now and then, to all of them.
func onNet(which func(*stage) []*etcdtest.Proxy, do func(*etcdtest.Proxy)) func(*stage) (func(), bool) {
	return func(s *stage) (func(), bool) {
		proxies := which(s)
		if s.rand.IntN(4) > 0 {
			i := s.rand.IntN(len(proxies))
			proxies = proxies[i : i+1]
		}
		for _, p := range proxies {
			do(p)
		}
		return func() {
			for _, p := range proxies {
				p.Heal()
			}
		}, true
	}
}

func (s *stage) killClient() (func(), bool) {
	i := s.rand.IntN(len(s.clients))
	s.clients[i].kill()
	s.former = append(s.former, s.clients[i])
	s.clients[i] = s.startClient()
	return nil, true
}

func (s *stage) pauseClient() (func(), bool) {
	p := s.clients[s.rand.IntN(len(s.clients))]
	p.pause()
	return p.resume, true
}

func (s *stage) killUnlocker() (func(), bool) {
	i := s.rand.IntN(len(s.unlockers))
	p := s.unlockers[i]
	if !p.Running() {
		return nil, false
	}
	p.kill()
	s.former = append(s.former, p)
	return func() {
		if s.unlockers[i] == p { // everything may have been restarted meanwhile
			s.unlockers[i] = s.startUnlocker(i)
		}
	}, true
}

func (s *stage) pauseUnlocker() (func(), bool) {
	p := s.unlockers[s.rand.IntN(len(s.unlockers))]
	if !p.Running() {
		return nil, false
	}
	p.pause()
	return p.resume, true
}

func (s *stage) killDash() (func(), bool) {
	s.dash.kill()
	s.former = append(s.former, s.dash)
	s.startDash()
	return nil, true
}

// force ends a hold as an operator does who looked at it a moment ago.
func (s *stage) force() (func(), bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	lock, held := s.held(ctx)
	if !held {
		return nil, false
	}
	shown, _, err := s.store.Get(ctx, lock)
	if err != nil || shown.Token == 0 {
		return nil, false
	}
	now := time.Now()
	s.store.Do(ctx, protocol.ActionForceUnlock, protocol.Subject{Hold: &shown.Record}, protocol.Action{
		ID: uuid.NewString(), At: metadata.Time{Time: now}, Actor: "ann", Source: "cli", Reason: "to see what happens",
		Lock: lock, UUID: shown.UUID, Token: shown.Token, Result: "success",
	})
	return nil, true
}

// held is a lock that a client holds.
func (s *stage) held(ctx context.Context) (lock string, found bool) {
	r, err := s.direct.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return "", false
	}
	var all []string
	for _, kv := range r.Kvs {
		k := s.layout.Parse(string(kv.Key))
		if k.Kind == protocol.KindField && k.ID == metadata.FieldUUID && !strings.HasPrefix(k.Lock, "keeper/") &&
			!strings.HasPrefix(k.Lock, "brink/") {
			all = append(all, k.Lock)
		}
	}
	if len(all) == 0 {
		return "", false
	}
	return all[s.rand.IntN(len(all))], true
}

// wipe deletes everything about a lock in one transaction, as an impatient user of etcdctl might.
func (s *stage) wipe() (func(), bool) {
	lock := s.locks()[s.rand.IntN(len(s.locks()))]
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	s.wiped = append(s.wiped, wipe{lock, stamp()})
	s.direct.Txn(ctx).Then(clientv3.OpDelete(s.layout.Record(lock), clientv3.WithPrefix()),
		clientv3.OpDelete(s.layout.Queue(lock), clientv3.WithPrefix())).Commit()
	return nil, true
}

// wipe is a deletion by hand. It may be done until it was over, or later, where no answer came.
type wipe struct {
	lock string
	from int64
}

// endTokens makes every token that etcd gave out invalid: a right was changed.
func (s *stage) endTokens() (func(), bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_, err := s.direct.UserChangePassword(ctx, etcdtest.RootUser, etcdtest.RootPassword)
	return nil, err == nil
}

// rotate replaces the certificates of members and clients, and has everybody connect anew.
func (s *stage) rotate() (func(), bool) {
	for i := range s.Nodes {
		s.members.CA().Issue(s.t, fmt.Sprintf("m%d", i))
	}
	s.issue()
	for _, p := range slices.Concat(s.ours, s.theirs) {
		p.Cut()
		p.Heal()
	}
	return nil, true
}

// until tries f until it succeeds.
func (s *stage) until(what string, f func(context.Context) error) {
	s.t.Helper()
	var err error
	for began := time.Now(); time.Since(began) < 40*time.Second; time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err = f(ctx)
		cancel()
		if err == nil {
			return
		}
	}
	s.t.Fatalf("waited without success for %s: %v", what, err)
}
