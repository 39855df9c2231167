package etcdtest_test

import (
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
)

func TestMain(m *testing.M) { etcdtest.Main(m) }

// Nobody else notices a network that is meant to be slow and is not.
func TestDelayAppliesEachWay(t *testing.T) {
	p := etcdtest.NewProxy(t, etcdtest.Shared(t).Endpoint())
	c := etcdtest.Shared(t).Through(t, p.Endpoint())
	etcdtest.Put(t, c, "a", "on time")
	p.Delay(50 * time.Millisecond)
	start := time.Now()
	etcdtest.Put(t, c, "a", "late")
	if took := time.Since(start); took < 100*time.Millisecond {
		t.Errorf("a round trip took %v with 50 ms of delay each way", took)
	}
}
