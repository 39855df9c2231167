package mutex_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestDurationsHaveDependentDefaults(t *testing.T) {
	type durations struct {
		defaults, call    []mutex.Option
		alert, autoUnlock time.Duration
	}
	minute := opts(mutex.AlertAfter(time.Minute), mutex.AutoUnlockAfter(time.Hour))
	queues(t, map[string]durations{
		"nothing said":           {nil, nil, 5 * time.Minute, 15 * time.Minute},
		"the run time said":      {nil, opts(mutex.AlertAfter(time.Hour)), time.Hour, 3 * time.Hour},
		"the life said":          {nil, opts(mutex.AutoUnlockAfter(time.Hour)), 20 * time.Minute, time.Hour},
		"the client's default":   {minute, nil, time.Minute, time.Hour},
		"the call wins":          {minute, opts(mutex.AlertAfter(2 * time.Minute)), 2 * time.Minute, time.Hour},
		"a heartbeat":            {nil, opts(mutex.Heartbeat(time.Hour)), time.Minute, time.Minute},
		"a heartbeat of seconds": {nil, opts(mutex.Heartbeat(10 * time.Second)), 10 * time.Second, 10 * time.Second},
	}, func(t *testing.T, q *fake, c durations) {
		take(t, newClient(t, q.client(), mutex.Options{Defaults: c.defaults}), "a", c.call...)
		doc := read(t, q.etcd, "a")
		if alert, autoUnlock := time.Until(doc.AlertAt), time.Until(doc.AutoUnlockAt); alert != c.alert ||
			autoUnlock != c.autoUnlock {
			t.Errorf("alert after %v, want %v; auto-unlock after %v, want %v", alert, c.alert, autoUnlock, c.autoUnlock)
		}
	})
}

func TestDeepBacktraceIsCutWithoutError(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		var dive func(depth int)
		dive = func(depth int) {
			if depth > 0 {
				dive(depth - 1)
				return
			}
			take(t, locks, "a", mutex.BacktraceDepth(1000))
		}
		dive(500)
		doc := read(t, f.etcd, "a")
		if n := len(doc.Backtrace); n > 16<<10 || n < 8<<10 || !strings.HasSuffix(doc.Backtrace, "\n... cut\n") {
			t.Errorf("%d bytes, ends with %q", n, doc.Backtrace[n-20:])
		}
		if take(t, locks, "b", mutex.BacktraceDepth(0)); read(t, f.etcd, "b").Backtrace != "" {
			t.Error("an unwanted backtrace")
		}
	})
}

func opts(o ...mutex.Option) []mutex.Option { return o }

func TestBadOptionsAreRefusedBeforeSending(t *testing.T) {
	c := newClient(t, clientv3.NewCtxClient(t.Context())) // any request would panic
	ctx := context.Background()
	long := strings.Repeat("x", 257)
	put := clientv3.OpPut("/x", "")
	write := mutex.Then(put)
	holds := mutex.If(clientv3.Compare(clientv3.Version("/x"), "=", 1))
	nothing := func(context.Context) error { return nil }
	try := func(name string, opts ...mutex.Option) error { _, err := c.TryLock(ctx, name, opts...); return err }
	wait := func(name string, opts ...mutex.Option) error { _, err := c.Lock(ctx, name, opts...); return err }
	then := func(ops ...clientv3.Op) error { return try("a", mutex.Then(ops...)) }
	adopt := func(name, uuid string, opts ...mutex.Option) error {
		_, err := c.Adopt(ctx, name, uuid, opts...)
		return err
	}
	all := func(names []string, opts ...mutex.Option) error { _, err := c.LockAll(ctx, names, opts...); return err }
	together := func(names []string, opts ...mutex.Option) error {
		_, err := c.TryLockAll(ctx, names, opts...)
		return err
	}
	many := strings.Fields("00 01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24")
	locker := func(name string, lost func(error), opts ...mutex.Option) error {
		_, err := c.Locker(ctx, name, lost, opts...)
		return err
	}
	for _, r := range []struct {
		want string
		err  error
	}{
		{"mutex: a Locker needs a function to call when the lock is lost", locker("a", nil)},
		{"the lock name is empty", locker("", notLost(t))},
		{"it takes neither If nor Then", locker("a", notLost(t), write)},
		{`lock "": the lock name is empty`, try("")},
		{`lock "` + long + `": the lock name has 257 bytes, at most 256 are allowed`, try(long)},
		{"AlertAfter is 0s: it must be positive", try("a", mutex.AlertAfter(0))},
		{"it must be at most 87600h0m0s", try("a", mutex.AlertAfter(1<<62))},
		{"AutoUnlockAfter is 0s: it must be positive", try("a", mutex.AutoUnlockAfter(0))},
		{"AutoUnlockAfter is 1ms: it must be at least 100ms",
			try("a", mutex.AutoUnlockAfter(time.Millisecond))},
		{"AlertAfter is 2m0s: it must not be longer than AutoUnlockAfter, which is 1m0s",
			try("a", mutex.AlertAfter(2*time.Minute), mutex.AutoUnlockAfter(time.Minute))},
		{"SafetyMargin is 1m0s: it must be shorter than AutoUnlockAfter, which is 1m0s",
			try("a", mutex.AutoUnlockAfter(time.Minute), mutex.SafetyMargin(time.Minute))},
		{"SafetyMargin is 0s: it must be positive", try("a", mutex.SafetyMargin(0))},
		{"LockDelay is -1ns", try("a", mutex.LockDelay(-1))},
		{"LockDelay is 1h0m0.000000001s", try("a", mutex.LockDelay(time.Hour+1))},
		{"the maximum hold of Heartbeat is 0s: it must be positive", try("a", mutex.Heartbeat(0))},
		{"the maximum hold of Heartbeat is 1m0s: it must not be shorter than AutoUnlockAfter, which is 1h0m0s",
			try("a", mutex.Heartbeat(time.Minute), mutex.AutoUnlockAfter(time.Hour))},
		{"AlertAfter is 2h0m0s: it must not be longer than the maximum hold of Heartbeat, which is 1h0m0s",
			try("a", mutex.Heartbeat(time.Hour), mutex.AlertAfter(2*time.Hour))},
		{"BacktraceDepth is -1: it must be between 0 and 1000", try("a", mutex.BacktraceDepth(-1))},
		{`attribute "uuid": the name belongs to the protocol`, try("a", mutex.Attribute("uuid", "x"))},
		{`attribute "x": json: unsupported value: NaN`, try("a", mutex.Attribute("x", math.NaN()))},
		{"purpose has 2048 bytes, at most 1024 are allowed", try("a", mutex.Purpose(strings.Repeat("x", 2048)))},

		{`lock "a": there is no function to run`, c.Do(ctx, "a", nil)},
		{`adopt "": the lock name is empty`, adopt("", foreignUUID)},
		{`adopt "a": the uuid of the hold is empty`, adopt("a", "")},
		{`adopt "a": AutoUnlockAfter is -1ns`, adopt("a", foreignUUID, mutex.AutoUnlockAfter(-1))},

		{`lock "a": Then takes puts and deletions`, then(clientv3.OpGet("/x"))},
		{`lock "a": Then takes puts and deletions`, then(clientv3.OpTxn(nil, nil, nil))},
		{`lock "a": a write names no key`, then(clientv3.OpPut("", "x"))},
		{`lock "a": a condition names no key`, try("a", mutex.If(clientv3.Cmp{}))},
		{`the write to "/mutexes/b/uuid" lies among the locks below /mutexes/`,
			then(clientv3.OpPut("/mutexes/b/uuid", "x"))},
		{`the write to "/mutexes/.tasks/set/task" lies among the locks below /mutexes/`,
			then(clientv3.OpPut("/mutexes/.tasks/set/task", "x"))},
		{`the write to "/mut" lies among the locks`, then(clientv3.OpDelete("/mut", clientv3.WithPrefix()))},
		{"lies among the locks", then(clientv3.OpDelete("\x00", clientv3.WithFromKey()))},
		{"123 conditions or writes, at most 122 fit into the transaction",
			then(slices.Repeat([]clientv3.Op{put}, 123)...)},
		{"only TryLock and TryLockAll take If and Then", wait("a", write)},
		{"only TryLock and TryLockAll take If and Then", c.Do(ctx, "a", nothing, holds)},
		{"If and Then work with plain locks only", try("a", mutex.Semaphore(3), write)},
		{`lock "a": If and Then cannot be Reentrant: a hold that is entered again is not taken again`,
			try("a", mutex.Reentrant(), write)},

		{`lock "a": the limit of Semaphore is 0: it must be between 1 and 1000000`, try("a", mutex.Semaphore(0))},
		{`lock "a": Weight is 0: it must be at least 1`, wait("a", mutex.Semaphore(3), mutex.Weight(0))},
		{`lock "a": Weight is 4: the semaphore has only 3 permits`,
			try("a", mutex.Semaphore(3), mutex.Weight(4))},
		{`lock "a": Weight is for a semaphore: add the option Semaphore`, try("a", mutex.Weight(1))},
		{`lock "a": Weight is for a semaphore, not for a read-write lock`,
			try("a", mutex.Shared(), mutex.Weight(1))},
		{`lock "a": the options Semaphore and Shared contradict each other: a hold is of one kind`,
			wait("a", mutex.Semaphore(3), mutex.Shared())},
		{`lock "a": the options Exclusive and Semaphore contradict each other: a hold is of one kind`,
			try("a", mutex.Exclusive(), mutex.Semaphore(3))},
		{`lock "a": attribute "permits": with the option Semaphore the name belongs to the protocol`,
			try("a", mutex.Semaphore(3), mutex.Attribute("permits", 2))},
		{`the name looks like share 7 of the lock "a": choose one that does not end in # and a number`,
			try("a#7", mutex.Shared())},
		{"the lock name has 256 bytes, at most 253 leave room for the numbers of its shares",
			wait(long[:256], mutex.Semaphore(99))},

		{"mutex: no lock was named", all(nil)},
		{`lock "b", "a", "b": a name is given twice`, all([]string{"b", "a", "b"})},
		{"a name is given twice", together([]string{"a", "a"})},
		{`lock "a", "": "": the lock name is empty`, all([]string{"a", ""})},
		{`lock "00", "01", "02", "03", "04" and 20 more: 25 locks, at most 24 fit into one transaction: use LockAll`,
			together(many)},
		{"8 conditions or writes, at most 7 fit into the transaction",
			together(many[:24], mutex.Then(slices.Repeat([]clientv3.Op{put}, 8)...))},
		{"only TryLock and TryLockAll take If and Then", all([]string{"a"}, write)},
		{"TryLockAll takes plain locks only: use LockAll",
			together([]string{"a", "b"}, mutex.ForLock("b", mutex.Shared()))},
		{`there are options for "b", which is not among the locks`, try("a", mutex.ForLock("b", mutex.Shared()))},
		{`there are options for "c", which is not among the locks`,
			all([]string{"a", "b"}, mutex.ForLock("c", mutex.Shared()))},
		{"If and Then apply to the whole call, not to ForLock",
			together([]string{"a", "b"}, mutex.ForLock("a", write))},
		{"ForLock is among the options of ForLock",
			all([]string{"a", "b"}, mutex.ForLock("a", mutex.ForLock("b", mutex.Shared())))},
	} {
		refusedWith(t, r.err, r.want)
	}
}

func refusedWith(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestBadReservationsAreRefusedBeforeSending(t *testing.T) {
	c := newClient(t, clientv3.NewCtxClient(t.Context())) // any request would panic
	for _, r := range []struct {
		want, name, reason string
		d                  time.Duration
		opt                mutex.Option
	}{
		{"a reservation needs a reason: no process can explain what the lock is held for", "a", "", time.Hour, nil},
		{"the duration of the reservation is 0s: it must be positive", "a", "x", 0, nil},
		{"AlertAfter is 2h0m0s: it must not be longer than AutoUnlockAfter, which is 1h0m0s", "a", "x", time.Hour,
			mutex.AlertAfter(2 * time.Hour)},
		{"a reservation has no heartbeat: nothing runs that could extend it", "a", "x", time.Hour,
			mutex.Heartbeat(2 * time.Hour)},
		{"a reservation cannot be Reentrant: it is a hold of its own", "a", "x", time.Hour, mutex.Reentrant()},
	} {
		_, waits := c.Reserve(context.Background(), r.name, r.reason, r.d, r.opt)
		_, tries := c.TryReserve(context.Background(), r.name, r.reason, r.d, r.opt)
		refusedWith(t, waits, r.want)
		refusedWith(t, tries, r.want)
	}
}

func TestBadClientOptionsAreRefused(t *testing.T) {
	_, noEtcd := mutex.New(nil, mutex.Options{})
	refusedWith(t, noEtcd, "mutex: no etcd client was given")
	for want, o := range map[string]mutex.Options{
		"mutex: the lock prefix is empty": {Prefix: "/"},
		"mutex: AttemptTimeout is 1h0m0s: it must be at most 1m0s, because a request whose connection died is " +
			"not sent again before": {AttemptTimeout: time.Hour},
		"mutex: RequestTimeout is -1ns: it must not be negative": {RequestTimeout: -1},
		"mutex: options: AutoUnlockAfter is -1s: it must be positive": {
			Defaults: opts(mutex.AutoUnlockAfter(-time.Second))},
		"mutex: options: boot_id is not valid UTF-8": {Process: &metadata.Process{BootID: "a\xffb"}},
		"mutex: options: owner is not valid UTF-8":   {Owner: "\xff"},
	} {
		_, err := mutex.New(clientv3.NewCtxClient(t.Context()), o)
		refusedWith(t, err, want)
	}
}
