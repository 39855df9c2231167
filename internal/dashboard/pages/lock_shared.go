package pages

import (
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// sharedPage is the page of a lock that several hold: it has no record of its own.
type sharedPage struct {
	lockFrame
	State    metadata.State // of the most urgent holder
	Use      string
	Headline Headline
	Steps    []StepView // about that holder, if the lock needs a person
	Runbook  string     // of the alert; empty: none
	First    Link       // that holder
	Other    int        // another limit that a holder believes in
	Table    lockTable
	More     int // holders that are not shown
	Cycles   []cycleView
}

// maxSharers is how many holders of one lock a page shows, the most urgent first.
const maxSharers = 100

func (p *Pages) serveShared(r *app.Request, lock *app.Lock) (app.Answer, error) {
	u := locks.SummarizeHolders(lock.Shares)
	holders := locks.Sort(lock.Shares, locks.Order{By: locks.MostUrgent})
	first := holders[0]
	v := sharedPage{lockFrame: p.lockFrame(r, lock), State: first.StateIn(r.Snapshot().Class(first)),
		Use: u.Describe(), Other: u.OtherLimit, First: Link{first.Name, p.app.URLs.Lock(first.Name, first.UUID)}}
	v.AutoRefresh = true
	v.Headline = p.HeadlineOf(r, lock, true)
	if v.Headline.Class.Section() == locks.NeedsYou {
		v.Runbook = v.Headline.Runbook()
		v.Steps = p.StepViews(r, lock, first, &v.Headline.Headline)
	}
	v.History.URL = p.app.URLs.To("history", "q", locks.FieldTerm("name", lock.Name+"#*"))
	v.Icon = v.State
	l := ListRequest{Query: &locks.Query{}, Order: locks.Order{By: locks.MostUrgent}, Limit: defaultLimit}
	v.More = max(0, len(holders)-maxSharers)
	v.Table = p.newTable(r, holders[:len(holders)-v.More], l, r.Snapshot().Class)
	v.Table.Caption = "Holders"
	for i := range v.Table.Columns {
		v.Table.Columns[i].unlink() // they are in one order
	}
	v.Cycles = p.cyclesOf(r, lock.Name, v.Headline.Class)
	return p.app.Render("shared", v)
}

type MultiHolderLock struct {
	Name, URL string
	Use       string
}

// multiHolderLockOf returns the lock that a hold has a share of, or nil.
func multiHolderLockOf(r *app.Request, row *locks.Row) *MultiHolderLock {
	lock := row.Share().LockName
	if lock == "" {
		return nil
	}
	w := &MultiHolderLock{Name: lock, URL: r.App.URLs.Lock(lock, "")}
	if holders := r.Snapshot().Shares(lock); len(holders) > 0 {
		w.Use = locks.SummarizeHolders(holders).Describe()
	}
	return w
}
