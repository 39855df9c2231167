package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/internal/etcdlocks"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// loadOtherLocks reads the locks of other libraries below these prefixes once.
func (s *session) loadOtherLocks(ctx context.Context, prefixes []string) (*etcdlocks.View, error) {
	v := etcdlocks.New(prefixes, s.layout, s.store, func(*locks.Leased, *metadata.Ending) {})
	if err := v.Load(ctx); err != nil {
		return nil, s.explain(ctx, "read the locks of other libraries", err)
	}
	return v, nil
}

// otherLocksNamed returns the locks of other libraries with this name: a queue, a single key, or both.
func (s *session) otherLocksNamed(ctx context.Context, name string) (found []*locks.Row, err error) {
	isAsked := func(prefix string) bool { return prefix != "" && strings.HasPrefix(name+"/", prefix) }
	if !slices.ContainsFunc(s.app.etcdLocks, isAsked) {
		return nil, nil
	}
	others, err := s.loadOtherLocks(ctx, []string{name})
	if err != nil {
		return nil, err
	}
	for _, l := range others.Locks() {
		if l.Name == name {
			found = append(found, locks.NewLeasedRow(l, s.app.Now()))
		}
	}
	return found, nil
}

// printLeased shows a lock of another library.
func (o *showOptions) printLeased(row *locks.Row) error {
	p := &lockReport{now: o.app.Now()}
	if o.format.JSON() {
		return writeJSON(o.app.Stdout, lockjson.New(row, p.now))
	}
	p.row("lock", text.Visible(row.Name))
	for _, f := range row.Leased.Facts(p.now) {
		p.row(f.Label, f.Text)
	}
	firstRows(p, "waiting", row.Leased.Waiters, func(i int, w metadata.Waiter) string {
		return fmt.Sprintf("%d. %s, lease %s", i+1, fullText(w.Owner), w.UUID)
	})
	return p.write(o.app.Stdout)
}
