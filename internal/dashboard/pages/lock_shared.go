package pages

import (
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/locks"
)

// sharedPage is the page of a lock that several hold: it has no record of its own.
type sharedPage struct {
	lockFrame
	State    locks.DisplayState // the worst of the holders
	Use      string
	Headline Headline
	Other    int // another limit that a holder believes in
	Table    lockTable
	More     int // holders that are not shown
	Cycles   []cycleView
}

// maxSharers is how many holders of one lock a page shows, the most urgent first.
const maxSharers = 100

func (p *Pages) shared(r *app.Request, lock *app.Lock) (app.Answer, error) {
	u := locks.SummarizeHolders(lock.Shares)
	v := sharedPage{lockFrame: p.lockFrame(r, lock), State: u.Display, Use: u.Describe(), Other: u.OtherLimit}
	v.AutoRefresh = true
	v.Headline = p.unnamedHeadlineOf(r, lock)
	v.History.URL = p.app.URLs.To("history", "q", locks.FieldTerm("name", lock.Name+"#*"))
	if v.Icon.State != "stale" {
		v.Icon = app.Icon{State: u.Display}
	}
	l := ListRequest{Query: &locks.Query{}, Order: locks.Order{By: locks.MostUrgent}, Limit: defaultLimit}
	holders := locks.Sort(lock.Shares, l.Order)
	v.More = max(0, len(holders)-maxSharers)
	v.Table = p.newTable(r, holders[:len(holders)-v.More], l,
		func(row *locks.Row) locks.Class { return row.Class })
	v.Table.Caption = "Holders"
	for i := range v.Table.Columns {
		v.Table.Columns[i].unlink() // they are in one order
	}
	v.Cycles = p.cyclesOf(r, lock.Name, v.Headline.Class)
	return p.app.Render("shared", v)
}

// MultiHolderLock is the lock that a hold has a share of.
type MultiHolderLock struct {
	Name, URL string
	Use       string
}

// MultiHolderLockOf returns the lock that a hold has a share of, or nil.
func MultiHolderLockOf(r *app.Request, row *locks.Row) *MultiHolderLock {
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
