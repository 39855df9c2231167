package mutex_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// The peers run in turns within one benchmark, so that a noisy machine is equally unkind to all of them; ratios are
// what counts.
const turns = 6

type peer struct {
	name string
	once func(client int) error
}

// compare runs every peer b.N times in all, in turns, and returns operations per second.
func compare(b *testing.B, clients int, peers []peer) map[string]float64 {
	took := map[string]time.Duration{}
	done := map[string]int{}
	for turn := range turns {
		for i := range peers {
			p := peers[(i+turn)%len(peers)]
			n := max(b.N/turns, clients)
			began := time.Now()
			parallel(b, clients, n, p.once)
			took[p.name] += time.Since(began)
			done[p.name] += n
		}
	}
	rates := map[string]float64{}
	for name, d := range took {
		rates[name] = float64(done[name]) / d.Seconds()
		b.ReportMetric(rates[name], name+"/s")
	}
	b.ReportMetric(0, "ns/op")
	return rates
}

func parallel(b *testing.B, clients, n int, once func(client int) error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			for next.Add(1) <= int64(n) {
				if err := once(client); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// connections bounds the etcd clients of a benchmark, which waiters share.
const connections = 50

// handOvers lets every waiter take the lock again and again. It counts from when each has had it once.
func handOvers(b *testing.B, waiters int, name string, server *etcdtest.Server,
	prepare func(*clientv3.Client) func() error) float64 {
	var requests, passed, last atomic.Int64
	var clients []*clientv3.Client
	for range min(waiters, connections) {
		etcd := server.Client(b)
		etcd.KV = &counting{KV: etcd.KV, n: &requests}
		clients = append(clients, etcd)
	}
	once := make([]func() error, waiters)
	for id := range waiters {
		once[id] = prepare(clients[id%len(clients)])
	}
	holds := make([]atomic.Int64, waiters)
	stop := make(chan struct{})
	var wg, warm sync.WaitGroup
	warm.Add(waiters)
	for id := range waiters {
		wg.Go(func() {
			for first := true; ; first = false {
				if err := once[id](); err != nil {
					b.Error(err)
					return
				}
				holds[id].Add(1)
				if last.Swap(int64(id+1)) != int64(id+1) {
					passed.Add(1)
				}
				if first {
					warm.Done()
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	warm.Wait()
	before := measure(b, clients[0], &requests, &passed, holds)
	time.Sleep(min(time.Duration(b.N)*5*time.Millisecond, 5*time.Second))
	after := measure(b, clients[0], &requests, &passed, holds)
	close(stop)
	wg.Wait()

	n := 0.0
	rate := float64(after.passed-before.passed) / after.at.Sub(before.at).Seconds()
	var sum, squares float64
	for id := range holds {
		x := float64(after.holds[id] - before.holds[id])
		n++
		sum += x
		squares += x * x
	}
	b.ReportMetric(rate, name+"-hand-overs/s")
	b.ReportMetric(float64(after.requests-before.requests)/sum, name+"-requests/hold")
	b.ReportMetric(float64(after.revision-before.revision)/sum, name+"-commits/hold")
	b.ReportMetric(sum*sum/(n*squares), name+"-jain")
	return rate
}

// counts is how far a benchmark is.
type counts struct {
	at                         time.Time
	requests, passed, revision int64
	holds                      []int64
}

func measure(b *testing.B, etcd *clientv3.Client, requests, passed *atomic.Int64, holds []atomic.Int64) counts {
	r, err := etcd.Get(context.Background(), "x")
	if err != nil {
		b.Fatal(err)
	}
	c := counts{at: time.Now(), requests: requests.Load(), passed: passed.Load(), revision: r.Header.Revision}
	for id := range holds {
		c.holds = append(c.holds, holds[id].Load())
	}
	return c
}

type counting struct {
	clientv3.KV
	n *atomic.Int64
}

func (c *counting) Txn(ctx context.Context) clientv3.Txn { c.n.Add(1); return c.KV.Txn(ctx) }

func (c *counting) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	c.n.Add(1)
	return c.KV.Get(ctx, key, opts...)
}

func (c *counting) Delete(ctx context.Context, key string,
	opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	c.n.Add(1)
	return c.KV.Delete(ctx, key, opts...)
}

// BenchmarkDelayCompare is what lock delays cost everybody: acquire and release with the compare of the delay's key,
// and the read of it where the lock is held, and without them. It is one request either way.
func BenchmarkDelayCompare(b *testing.B) {
	etcd := etcdtest.Cluster(b, 1).Client(b)
	l := layout(b)
	now := time.Now()
	once := func(lock string, compare bool) error {
		id := uuid.NewString()
		fields, err := metadata.Draft{UUID: id,
			Holder: metadata.Holder{Owner: "billing", Hostname: "host-1", PID: 17,
				Purpose: "send the invoices of the month"}, LockedAt: now, AlertAt: now.Add(time.Minute),
			AutoUnlockAt: now.Add(2 * time.Minute)}.Fields()
		if err != nil {
			return err
		}
		txn := locktxn.Acquire(l, locktxn.Sole(lock), id, fields, false)
		if !compare {
			delay := l.Delay(lock)
			txn.If = slices.DeleteFunc(txn.If, func(c clientv3.Cmp) bool { return string(c.KeyBytes()) == delay })
			txn.Else = txn.Else[:1]
		}
		r, err := txn.Commit(context.Background(), etcd)
		if err != nil || !r.Succeeded {
			return fmt.Errorf("acquire: %v, %w", r, err)
		}
		hold := locktxn.Hold{Lock: lock, UUID: id, Token: r.Header.Revision}
		_, err = locktxn.Release(l, hold).Commit(context.Background(), etcd)
		return err
	}
	used := map[string]time.Duration{} // of the processors, by client and server: other programs matter less to it
	metered := func(name string, compare bool) peer {
		return peer{name, func(int) error {
			began := cpuTime(b)
			defer func() { used[name] += cpuTime(b) - began }()
			return once(name, compare)
		}}
	}
	rates := compare(b, 1, []peer{metered("with", true), metered("without", false)})
	b.ReportMetric(rates["without"]/rates["with"], "x-time-of-without")
	b.ReportMetric(float64(used["with"])/float64(used["without"]), "x-cpu-of-without")
}

// cpuTime is the time of the processors that this process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
