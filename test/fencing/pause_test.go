//go:build unix

package fencing_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// A real process is stopped between its last check of the lock and its write: until an operator takes the lock away, or
// until after its deadline.
func TestLateWriteOfAStoppedProcess(t *testing.T) {
	for _, c := range []struct {
		name     string
		life     time.Duration
		takeAway func(testing.TB, *clientv3.Client, string)
		lost     string
	}{
		{"until somebody takes the lock away", time.Hour, forceUnlock, `lock "page" was lost: force-unlocked by ann`},
		// its own clock tells it first, or etcd
		{"for longer than its deadline", time.Second, autoUnlock, `lock "page" `},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := etcdtest.Start(t)
			s := serve(t)
			etcd := server.Client(t)
			h := startHolder(t, server.Endpoint(), s.url, c.life)
			var token int64
			if _, err := fmt.Sscanf(h.NextLine(t), "held %d", &token); err != nil {
				t.Fatal(err)
			}
			if err := h.Pause(); err != nil {
				t.Fatal(err)
			}
			h.tell(t, "write\n") // it would, if it could
			c.takeAway(t, etcd, "page")
			next := take(t, etcd, "next", "page")
			for _, name := range []string{"open", "fenced"} {
				if err := putPage(s.url+"/"+name, next.Token(), "next"); err != nil {
					t.Fatal(err)
				}
			}
			if next.Token() <= token || s.open.read() != "next" || s.fenced.read() != "next" {
				t.Fatalf("tokens %d, %d; pages %q, %q", token, next.Token(), s.open.read(), s.fenced.read())
			}
			h.Resume()
			for _, want := range []string{"open 200", "fenced 412", c.lost, "not held any more: true"} {
				if got := h.NextLine(t); !strings.HasPrefix(got, want) {
					t.Errorf("the holder says %q, want %q", got, want)
				}
			}
			if s.open.read() != "late" || s.fenced.read() != "next" {
				t.Errorf("without a fence %q was written last, behind one %q", s.open.read(), s.fenced.read())
			}
			if err := next.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
}

// autoUnlock removes a lock as soon as its time is up, as an unlocker would.
func autoUnlock(t testing.TB, etcd *clientv3.Client, name string) {
	t.Helper()
	l := protocol.DefaultLayout()
	store := lockstore.New(etcd, l)
	doc, _, err := store.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Until(doc.AutoUnlockAt)) // the process that stands still has no clock to be wound
	ending := metadata.NewEnding(&doc.Record, metadata.EndedAutoUnlocked, "unlocker-1", "its time was up", time.Now())
	if err := errors.Join(store.AutoUnlock(t.Context(),
		[]metadata.Removal{{Record: &doc.Record, Ending: ending}})...); err != nil {
		t.Fatal(err)
	}
}

// holder runs this test binary again, as the holder of a lock.
type holder struct {
	*proctest.Process
	in io.Writer
}

func startHolder(t *testing.T, endpoint, url string, life time.Duration) *holder {
	t.Helper()
	cmd := proctest.Self(holderVariable, endpoint+" "+url+" "+life.String())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	return &holder{Process: proctest.Start(t, cmd), in: in}
}

func (h *holder) tell(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(h.in, line); err != nil {
		t.Fatal(err)
	}
}
