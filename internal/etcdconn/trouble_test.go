package etcdconn_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

func TestTroubleIsToldOnceUntilItIsOver(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	log := &proctest.Log{}
	count := func(text string) int { return strings.Count(log.String(), text) }
	c, err := etcdconn.New(etcdconn.Settings{Endpoints: []string{server.Endpoint()}}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	trouble := &etcdconn.Trouble{Etcd: c, Prefix: "/m/", Well: func() bool { return false }, Log: zerolog.New(log)}
	trouble.Every(50 * time.Millisecond)
	proctest.Go(t, trouble.Run)

	for range 2 {
		told := count(`"class":"unreachable"`)
		server.Stop()
		until(t, func() bool { return strings.Contains(trouble.Cause(), "etcd is unreachable") })
		time.Sleep(200 * time.Millisecond) // looks a few times more, and has nothing new to say
		if n := count(`"class":"unreachable"`); n != told+1 {
			t.Errorf("the log says %d times that etcd is away, want once", n-told)
		}
		over := count("can be used again")
		server.Restart(t)
		until(t, func() bool { return trouble.Cause() == "" && count("can be used again") == over+1 })
	}
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
	}
}
