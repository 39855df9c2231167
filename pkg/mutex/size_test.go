package mutex_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestWritesThatAreTooLargeAreRefusedBeforeTheyAreSent(t *testing.T) {
	etcd, locks := onEtcd(t)
	write := func(bytes int) clientv3.Op { return clientv3.OpPut("/mine", strings.Repeat("x", bytes)) }
	tooLarge := func(err error) bool {
		return err != nil && !errors.Is(err, mutex.ErrUnknown) &&
			strings.Contains(err.Error(), "MiB, and etcd takes 1.5 MiB")
	}
	for _, bytes := range []int{3 << 19, 2 << 20, 3 << 20, 16 << 20} {
		if _, err := locks.TryLock(context.Background(), "a", mutex.Then(write(bytes))); !tooLarge(err) {
			t.Errorf("%d bytes: %v", bytes, err)
		}
	}
	wantEmpty(t, etcd)

	l := take(t, locks, "a")
	if err := l.UnlockWith([]clientv3.Op{write(3 << 20)}); !tooLarge(err) || l.Context().Err() != nil {
		t.Errorf("unlock with too much: %v, and then %v", err, context.Cause(l.Context()))
	}
	unlock(t, l)

	for bytes := 3 << 19; ; bytes -= 128 { // the largest that is not refused
		l, err := locks.TryLock(context.Background(), "a", mutex.Then(write(bytes)))
		if tooLarge(err) {
			continue
		}
		if err != nil {
			t.Fatalf("etcd refuses %d bytes: %v", bytes, err)
		}
		if bytes < 3<<19-8<<10 {
			t.Errorf("only %d bytes fit", bytes)
		}
		unlock(t, l)
		return
	}
}
