//go:build unix

package fencing_test

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/fencing"
	"github.com/clustermutex/unlocker/pkg/locktest"
)

// A real process is stopped between its last check of the lock and its write: until an operator takes the lock away, or
// until after its deadline.
func TestLateWriteOfAStoppedProcess(t *testing.T) {
	for _, c := range []struct {
		name string
		life time.Duration
		lost string
	}{
		{"until somebody takes the lock away", time.Hour, `lock "page" was lost: force-unlocked by operator`},
		// its own clock tells it first, or etcd
		{"for longer than its deadline", time.Second, `lock "page" `},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t)
			locks := locktest.New(t)
			h := startHolder(t, locks.Endpoint(), s.url, c.life)
			var token int64
			_, err := fmt.Sscanf(h.NextLine(t), "held %d", &token)
			proctest.Must(t, err)
			proctest.Must(t, h.Pause())
			fmt.Fprintln(h.in, "write") // it would, if it could
			if c.life == time.Hour {
				locks.ForceUnlock("page", "its machine does not answer")
			} else {
				<-time.After(time.Until(locks.AssertHeld("page").AutoUnlockAt)) // real time: the process has no other
				locks.Expire("page")
			}
			next := take(t, locks, "next", "page")
			for _, name := range []string{"open", "fenced"} {
				proctest.Must(t, put(s.url+"/"+name, next.Token(), "next"))
			}
			if next.Token() <= token || s.open.read() != "next" || s.fenced.read() != "next" {
				t.Fatalf("tokens %d, %d; pages %q, %q", token, next.Token(), s.open.read(), s.fenced.read())
			}
			h.Resume()
			refused := "fenced " + fencing.ErrRefused.Error()
			for _, want := range []string{"open <nil>", refused, c.lost, "not held any more: true"} {
				if got := h.NextLine(t); !strings.HasPrefix(got, want) {
					t.Errorf("the holder says %q, want %q", got, want)
				}
			}
			if s.open.read() != "late" || s.fenced.read() != "next" {
				t.Errorf("without a fence %q was written last, behind one %q", s.open.read(), s.fenced.read())
			}
			proctest.Must(t, next.Unlock())
		})
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
	proctest.Must(t, err)
	return &holder{Process: proctest.Start(t, cmd), in: in}
}
