package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/etcdlocks"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// etcdLocksFlag makes cmd show locks of other libraries, too.
func (a *app) etcdLocksFlag(cmd *cobra.Command) { flags.EtcdLocks(cmd.Flags(), &a.etcdLocks) }

// otherLocks returns a watcher of the locks of other libraries below these prefixes.
func (s *session) otherLocks(prefixes []string,
	ended func(*locks.Leased, *metadata.Ending)) *etcdlocks.Watcher {
	return etcdlocks.New(prefixes, s.layout, etcdlocks.Source{List: s.store.ListPrefix,
		Watch: s.store.WatchPrefix, Lease: s.store.ReadLease, Explain: etcdconn.Explain},
		etcdlocks.Options{OnEnded: ended, Log: s.log})
}

// loadOtherLocks reads the locks of other libraries below the prefixes once.
func (s *session) loadOtherLocks(ctx context.Context, prefixes []string) (*etcdlocks.Watcher, error) {
	w := s.otherLocks(prefixes, nil)
	if err := w.Load(ctx); err != nil {
		return nil, s.explain(ctx, "read the locks of other libraries", err)
	}
	return w, nil
}

// otherLocksNamed returns the locks of other libraries with this name, if it is below a prefix that was named.
func (s *session) otherLocksNamed(ctx context.Context, name string) (found []*locks.Row, err error) {
	for _, prefix := range s.app.etcdLocks {
		if prefix == "" || !strings.HasPrefix(name+"/", prefix) {
			continue
		}
		w, err := s.loadOtherLocks(ctx, []string{name})
		if err != nil {
			return nil, err
		}
		for _, l := range w.Locks() {
			if l.Name == name {
				found = append(found, locks.NewLeasedRow(l, s.app.Now()))
			}
		}
		return found, nil
	}
	return nil, nil
}

// showOtherLocks shows the locks of other libraries with this name, and reports whether there are any.
func (o *showOptions) showOtherLocks(ctx context.Context, s *session, name string) (shown bool, err error) {
	found, err := s.otherLocksNamed(ctx, name)
	for _, row := range found {
		if o.format.JSON() {
			err = writeJSON(o.app.Stdout, lockjson.New(row, o.app.Now()))
		} else {
			err = newLeasedReport(row, o.app.Now()).write(o.app.Stdout)
		}
		if err != nil {
			return true, err
		}
	}
	return len(found) > 0, err
}

// newLeasedReport returns the report about a lock of another library.
func newLeasedReport(row *locks.Row, now time.Time) *lockReport {
	p := &lockReport{now: now}
	p.row("lock", text.Visible(row.Name))
	for _, f := range row.Leased.Facts(now) {
		p.row(f.Label, f.Text)
	}
	firstRows(p, "waiting", row.Leased.Waiters, func(i int, w metadata.Waiter) string {
		return fmt.Sprintf("%d. %s, lease %s", i+1, fullText(w.Owner), w.UUID)
	})
	command, consequence := row.Leased.Revoke()
	p.block("to end it", command+"\n"+consequence)
	return p
}

// maxCounted is how many keys are read to say that there are some.
const maxCounted = 1000

// countOtherKeys returns how many keys other lock libraries have for a lock of this name.
func (s *session) countOtherKeys(ctx context.Context, name string) (n int) {
	ctx, cancel := s.request(ctx)
	defer cancel()
	read := 0
	// Without the right to read them, nothing is said of them.
	_, _ = s.store.ListPrefix(ctx, name+"/", 0, func(kv protocol.KV) {
		if read++; read >= maxCounted {
			cancel()
		}
		if kv.IsQueued() {
			n++
		}
	})
	return n
}

// otherKeysNote says that keys of other libraries are not shown.
func otherKeysNote(n int, prefix string) string {
	return fmt.Sprintf("%s of another lock library below %s: --etcd-locks %[2]s shows them", text.Count(n, "key"),
		text.ShellWord(prefix))
}

// countOthers returns how many locks of other libraries were read.
func (all *snapshot) countOthers() int {
	if all.others == nil {
		return 0
	}
	return len(all.others.Locks())
}
