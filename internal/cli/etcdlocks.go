package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/etcdlocks"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// etcdLocksFlag makes cmd show locks of other libraries, too.
func (a *app) etcdLocksFlag(cmd *cobra.Command) { flags.EtcdLocks(cmd.Flags(), &a.etcdLocks) }

// otherLocks returns a watcher of the locks of other libraries below these prefixes.
func (s *session) otherLocks(prefixes []string,
	ended func(*locks.Leased, *metadata.Ending)) *etcdlocks.Watcher {
	return etcdlocks.New(prefixes, s.layout, s.store, etcdlocks.Options{Explain: etcdconn.Explain, OnEnded: ended,
		Log: s.log})
}

// loadOtherLocks reads the locks of other libraries below the prefixes once.
func (s *session) loadOtherLocks(ctx context.Context, prefixes []string) (*etcdlocks.Watcher, error) {
	w := s.otherLocks(prefixes, nil)
	if err := w.Load(ctx); err != nil {
		return w, s.explain(ctx, "read the locks of other libraries", err)
	}
	return w, nil
}

// otherLocksNamed returns the locks of other libraries with this name, and a note instead if no prefix that was named
// has it. Without the right to read them, there is no note.
func (s *session) otherLocksNamed(ctx context.Context, name string) (found []*locks.Row, note string, err error) {
	asked := slices.ContainsFunc(s.app.etcdLocks, func(prefix string) bool {
		return prefix != "" && strings.HasPrefix(name+"/", prefix)
	})
	others, err := s.loadOtherLocks(ctx, []string{name})
	if err != nil && asked {
		return nil, "", err
	}
	keys := 0
	for _, l := range others.Locks() {
		if l.Name == name && (asked || !l.Single) {
			found = append(found, locks.NewLeasedRow(l, s.app.Now()))
			keys += 1 + len(l.Waiters)
		}
	}
	if !asked && keys > 0 {
		return nil, "; " + otherKeysNote(keys, name+"/"), nil
	}
	return found, "", nil
}

// printLeased shows a lock of another library.
func (o *showOptions) printLeased(row *locks.Row) error {
	if o.format.JSON() {
		return writeJSON(o.app.Stdout, lockjson.New(row, o.app.Now()))
	}
	return newLeasedReport(row, o.app.Now()).write(o.app.Stdout)
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

// otherKeysNote says that keys of other libraries are not shown.
func otherKeysNote(n int, prefix string) string {
	return fmt.Sprintf("%s of another lock library below %s: --etcd-locks %[2]s shows them", text.Count(n, "key"),
		text.ShellWord(prefix))
}
