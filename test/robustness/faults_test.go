package robustness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// fault is something that can be broken. do returns what repairs it; nil where it could not be broken at the moment, or
// where there is nothing to repair.
type fault struct {
	name   string
	weight int
	most   time.Duration // how long it lasts at most
	sweep  bool          // it keeps unlockers from removing, or gives them reason to wait
	do     func(s *stage) (repair func(), done bool)
}

// faultDone is one that was broken: until a time, where there is something to repair.
type faultDone struct {
	fault
	from, to int64
	until    time.Time
	repair   func()
}

// breakThings breaks one thing after another, some of them at the same time, and repairs them again.
func (s *stage) breakThings(ctx context.Context) {
	faults := slices.DeleteFunc(s.allFaults(),
		func(f fault) bool { return slices.Contains(s.Without, f.name) || s.Calm && f.sweep })
	for i, f := range faults {
		if slices.Contains(s.Favour, f.name) {
			faults[i].weight *= 10
		}
	}
	var now []*faultDone
	for ctx.Err() == nil {
		now = repairSome(now, time.Now())
		if len(now) < 3 {
			now = s.breakOne(faults, now)
		}
		sleep(ctx, 150*time.Millisecond+time.Duration(s.rand.Int64N(int64(900*time.Millisecond))))
	}
	repairSome(now, time.Now().Add(time.Hour))
	s.repairAll()
}

func (s *stage) breakOne(faults []fault, now []*faultDone) []*faultDone {
	total := 0
	for _, f := range faults {
		total += f.weight
	}
	n := s.rand.IntN(total)
	i := slices.IndexFunc(faults, func(f fault) bool { n -= f.weight; return n < 0 })
	f := &faultDone{fault: faults[i], from: stamp()}
	var done bool
	if f.repair, done = f.do(s); !done {
		return now
	}
	f.to = stamp()
	s.counts[f.name]++
	s.faults = append(s.faults, f)
	if f.repair == nil {
		return now
	}
	f.until = time.Now().Add(200*time.Millisecond + time.Duration(s.rand.Int64N(int64(f.most))))
	return append(now, f)
}

func repairSome(now []*faultDone, at time.Time) []*faultDone {
	return slices.DeleteFunc(now, func(f *faultDone) bool {
		if at.Before(f.until) {
			return false
		}
		f.repair()
		f.to = stamp()
		return true
	})
}

func (s *stage) repairAll() {
	for _, p := range slices.Concat(s.ours.proxies, s.theirs.proxies) {
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
	for _, w := range slices.Concat(s.ours.wires, s.theirs.wires) {
		for name, n := range w.done() {
			s.counts[name] += n
		}
	}
}

func (s *stage) up(i int) {
	s.members.Resume(i)
	if s.down[i] {
		s.members.Restart(i)
		s.down[i] = false
	}
}

// kinds of faults of one world.
func (s *stage) allFaults() []fault {
	all := []fault{
		{"etcd: member killed", 6, 3 * time.Second, true, unbroken((*stage).killMember)},
		{"etcd: member stands still", 5, 3 * time.Second, true, unbroken((*stage).pauseMember)},
		{"etcd: all members stand still", 2, 6 * time.Second, true, unbroken((*stage).pauseAll)},
		{"etcd: out of space", 2, 2 * time.Second, true, (*stage).fill},
		{"etcd: compacted", 6, 0, false, (*stage).compact},
		{"everything restarted", 1, 0, true, unbroken((*stage).restartAll)},
		{"network of holders: cut", 4, 1500 * time.Millisecond, false, onNet(ours, (*etcdtest.Proxy).Cut)},
		{"network of holders: silent", 4, 2 * time.Second, false, onNet(ours, (*etcdtest.Proxy).Stall)},
		{"network of holders: answers lost", 4, 2 * time.Second, false, onNet(ours, (*etcdtest.Proxy).DropAnswers)},
		{"network of holders: slow", 4, 2 * time.Second, false, onNet(ours, slow)},
		{"network of unlockers: cut", 3, 1500 * time.Millisecond, true, onNet(theirs, (*etcdtest.Proxy).Cut)},
		{"network of unlockers: silent", 3, 2 * time.Second, true, onNet(theirs, (*etcdtest.Proxy).Stall)},
		{"network of unlockers: answers lost", 3, 2 * time.Second, true, onNet(theirs, (*etcdtest.Proxy).DropAnswers)},
		{"network of unlockers: slow", 3, 2 * time.Second, true, onNet(theirs, slow)},
		{"client killed", 4, 0, false, (*stage).killClient},
		{"client stands still", 5, 6 * time.Second, false, pausing(anyClient)},
		{"unlocker killed", 3, 2 * time.Second, true, (*stage).killUnlocker},
		{"unlocker's clock off", 4, 4 * time.Second, true, (*stage).jumpClock},
		{"unlocker stands still", 3, 6 * time.Second, true, pausing(anyUnlocker)},
		{"dashboard killed", 1, 0, false, (*stage).killDash},
		{"lock forced", 5, 0, false, (*stage).force},
		{"lock and its queue deleted by hand", 4, 0, false, (*stage).wipe},
	}
	if s.Nodes > 1 {
		all = append(all, fault{"etcd: leader killed", 5, 3 * time.Second, true, unbroken((*stage).killLeader)},
			fault{"etcd: leader changed", 4, 0, true, unbroken((*stage).moveLeader)})
	}
	switch s.World {
	case loginWorld:
		all = append(all, fault{"login: all tokens ended", 8, 0, true, (*stage).endTokens})
	case certificatesWorld:
		all = append(all, fault{"certificates replaced", 8, 0, true, (*stage).rotate})
	}
	if s.witness != nil { // none of these keeps unlockers from removing by the deadlines
		all = append(all, fault{"witness killed", 3, 3 * time.Second, false, (*stage).killWitness},
			fault{"witness stands still", 3, 5 * time.Second, false, pausing(theWitness)},
			fault{"death stated by a stranger", 6, 0, false, (*stage).stateFalsely})
	}
	if *disksFlag {
		all = append(all, fault{"etcd: disk hangs", 10, 4 * time.Second, true, unbroken((*stage).hangDisk)})
	}
	return all
}

// unbroken breaks something of an etcd whose members all run: the majority stays, where there is more than one.
func unbroken(do func(s *stage) (func(), bool)) func(s *stage) (func(), bool) {
	return func(s *stage) (func(), bool) {
		if slices.Contains(s.down, true) {
			return nil, false
		}
		return do(s)
	}
}

func (s *stage) killMember() (func(), bool) { return s.killOf(s.rand.IntN(s.Nodes)) }

func (s *stage) killOf(i int) (func(), bool) {
	s.members.Kill(i)
	s.down[i] = true
	return func() { s.up(i) }, true
}

func (s *stage) pauseMember() (func(), bool) {
	i := s.rand.IntN(s.Nodes)
	return s.standStill(i, i+1)
}

func (s *stage) pauseAll() (func(), bool) { return s.standStill(0, s.Nodes) }

// standStill pauses these members, the last of them apart.
func (s *stage) standStill(from, to int) (func(), bool) {
	for i := from; i < to; i++ {
		s.members.Pause(i)
		s.down[i] = true
	}
	return func() {
		for i := from; i < to; i++ {
			s.members.Resume(i)
			s.down[i] = false
		}
	}, true
}

func (s *stage) statuses(ctx context.Context) (all []*clientv3.StatusResponse, err error) {
	for _, e := range s.members.Endpoints() {
		status, err := s.direct.Status(ctx, e)
		if err != nil {
			return nil, err
		}
		all = append(all, status)
	}
	return all, nil
}

// leader is the member that leads, and the id of another; -1 where that is not known.
func (s *stage) leader() (leads int, other uint64) {
	ctx, cancel := timeout(time.Second)
	defer cancel()
	all, err := s.statuses(ctx)
	i := slices.IndexFunc(all, func(m *clientv3.StatusResponse) bool { return m.Header.MemberId == m.Leader })
	if err != nil || i < 0 {
		return -1, 0
	}
	return i, all[(i+1)%len(all)].Header.MemberId
}

func (s *stage) killLeader() (func(), bool) {
	i, _ := s.leader()
	if i < 0 {
		return nil, false
	}
	return s.killOf(i)
}

func (s *stage) moveLeader() (func(), bool) {
	i, next := s.leader()
	if i < 0 {
		return nil, false
	}
	ctx, cancel := timeout(2 * time.Second)
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
		ctx, cancel := timeout(2 * time.Second)
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
	all, err := s.statuses(ctx)
	for _, m := range all {
		if m.DbSize > quota/2 {
			return fmt.Errorf("%x still has %d MiB of its quota of %d MiB after its defragmentation", m.Header.MemberId,
				m.DbSize>>20, quota>>20)
		}
	}
	return err
}

func (s *stage) alarms(ctx context.Context) (string, error) {
	r, err := s.direct.AlarmList(ctx)
	if err != nil || len(r.Alarms) == 0 {
		return "", err
	}
	text := "etcd raises an alarm:"
	for _, a := range r.Alarms {
		text += fmt.Sprintf(" %v at member %x", a.Alarm, a.MemberID)
	}
	return text, nil
}

// caughtUp waits until every member has applied all that any of them had in its log: one that is behind, and has still
// to delete and to compact, would raise the alarm again after its defragmentation.
func (s *stage) caughtUp(ctx context.Context) error {
	all, err := s.statuses(ctx)
	newest := uint64(0)
	for _, m := range all {
		newest = max(newest, m.RaftIndex)
	}
	behind := func(m *clientv3.StatusResponse) bool { return m.RaftAppliedIndex < newest }
	for err == nil && slices.ContainsFunc(all, behind) {
		sleep(ctx, 20*time.Millisecond)
		all, err = s.statuses(ctx)
	}
	return err
}

func (s *stage) compact() (func(), bool) {
	ctx, cancel := timeout(time.Second)
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
	for i := range s.down {
		s.members.Kill(i)
	}
	for i, p := range s.unlockers {
		s.ends(p)
		s.unlockers[i] = s.startUnlocker(i)
	}
	s.killClient()
	s.killDash()
	for i := range s.down {
		s.members.Restart(i)
	}
	return nil, true
}

func ours(s *stage) []*etcdtest.Proxy   { return s.ours.proxies }
func theirs(s *stage) []*etcdtest.Proxy { return s.theirs.proxies }

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

func (s *stage) ends(p *child) bool {
	if !p.Running() {
		return false
	}
	p.kill()
	s.former = append(s.former, p)
	return true
}

func (s *stage) killClient() (func(), bool) {
	i := s.rand.IntN(len(s.clients))
	s.ends(s.clients[i])
	s.clients[i] = s.startClient()
	return nil, true
}

func theWitness(s *stage) *child  { return s.witness }
func anyClient(s *stage) *child   { return s.clients[s.rand.IntN(len(s.clients))] }
func anyUnlocker(s *stage) *child { return s.unlockers[s.rand.IntN(len(s.unlockers))] }

// pausing has a process stand still, if it runs.
func pausing(which func(s *stage) *child) func(s *stage) (func(), bool) {
	return func(s *stage) (func(), bool) {
		p := which(s)
		if !p.Running() {
			return nil, false
		}
		p.pause()
		return p.resume, true
	}
}

func (s *stage) killUnlocker() (func(), bool) {
	i := s.rand.IntN(len(s.unlockers))
	p := s.unlockers[i]
	return func() {
		if s.unlockers[i] == p { // everything may have been restarted meanwhile
			s.unlockers[i] = s.startUnlocker(i)
		}
	}, s.ends(p)
}

func (s *stage) killDash() (func(), bool) {
	s.ends(s.dash)
	s.startDash()
	return nil, true
}

// force ends a hold as an operator does who looked at it a moment ago.
func (s *stage) force() (func(), bool) {
	ctx, cancel := timeout(2 * time.Second)
	defer cancel()
	shown, held := s.someHold(ctx, func(lock string) bool {
		return !strings.HasPrefix(lock, "keeper/") && !strings.HasPrefix(lock, "brink/")
	})
	if !held {
		return nil, false
	}
	now := time.Now()
	s.store.Perform(ctx, protocol.VerbForceUnlock, protocol.ActionTarget{Hold: &shown.Record}, protocol.Action{
		ID: uuid.NewString(), At: metadata.Time{Time: now}, Actor: "ann", Source: "cli", Reason: "to see what happens",
		Lock: shown.Name, UUID: shown.UUID, Token: shown.Token, Result: "success",
	})
	return nil, true
}

// someHold is the hold of one of the locks that fit.
func (s *stage) someHold(ctx context.Context, fits func(lock string) bool) (shown metadata.FullRecord, found bool) {
	held, _ := s.held(ctx)
	maps.DeleteFunc(held, func(lock string, _ int64) bool { return !fits(lock) })
	if len(held) == 0 {
		return shown, false
	}
	all := slices.Sorted(maps.Keys(held))
	shown, _, err := s.store.ReadRecord(ctx, all[s.rand.IntN(len(all))])
	return shown, err == nil && shown.Token != 0
}

// held are the locks that are held and their tokens, as etcd has them.
func (s *stage) held(ctx context.Context) (map[string]int64, error) {
	r, err := s.direct.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	all := map[string]int64{}
	for _, kv := range r.Kvs {
		if k := s.layout.Parse(string(kv.Key)); k.Kind == protocol.KindField && k.ID == lockrecord.FieldUUID {
			all[k.Lock] = kv.CreateRevision
		}
	}
	return all, nil
}

// wipe deletes everything about a lock in one transaction, as an impatient user of etcdctl might.
func (s *stage) wipe() (func(), bool) {
	lock := s.locks()[s.rand.IntN(len(s.locks()))]
	ctx, cancel := timeout(2 * time.Second)
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
	ctx, cancel := timeout(2 * time.Second)
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
	for _, p := range slices.Concat(s.ours.proxies, s.theirs.proxies) {
		p.Cut()
		p.Heal()
	}
	return nil, true
}

func (s *stage) until(what string, f func(context.Context) error) {
	proctest.Eventually(s.t, what, func() error {
		ctx, cancel := timeout(5 * time.Second)
		defer cancel()
		return f(ctx)
	})
}
