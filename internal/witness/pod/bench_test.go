package pod_test

import (
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/witness/pod"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Every change of a lock or a pod causes a look at all locks, at most twenty times a second.
func BenchmarkLook(b *testing.B) {
	const pods = 10_000
	const locks = 100_000
	held := make([]*metadata.Record, locks)
	for i := range held {
		held[i] = &metadata.Record{Name: fmt.Sprint(i), UUID: fmt.Sprint(i), Token: int64(i + 1),
			LockedAt: time.Date(2026, 1, 1, 11, 0, 0, 0, time.UTC), Process: &metadata.Process{PodNamespace: "shop",
				PodName: fmt.Sprint("worker-", i%pods), PodUID: fmt.Sprint("u", i%pods), Container: "worker"}}
	}
	w := pod.New(pod.Config{
		Locks: func() iter.Seq[*metadata.Record] { return slices.Values(held) },
		Clock: func() time.Duration { return time.Second }, Log: zerolog.Nop(),
	}, nil)
	for i := range pods {
		text := fmt.Sprintf(`{"metadata":{"namespace":"shop","name":"worker-%d","uid":"u%d"},
"spec":{"restartPolicy":"Always","containers":[{"name":"worker"},{"name":"proxy"}]},"status":{"phase":"Running",
"containerStatuses":[{"name":"worker","containerID":"c%d","state":%s}]}}`, i, i, i, runs)
		if err := w.Feed(text); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		w.Look(b.Context())
	}
}
