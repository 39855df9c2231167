package pages

import (
	"slices"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
)

// sharedPage is the page of a lock that several hold: it has no record of its own.
type sharedPage struct {
	site.Page
	Name     string
	Look     locks.DisplayState // the worst of the holders
	Use      string
	Other    int // another limit that a holder believes in
	Table    table
	More     int // holders that are not shown
	Waiters  []WaiterView
	Recorded bool
	Asked    bool   // for a hold that is over
	Past     string // link to the history of all shares
	Cycles   []cycleView
	Back     string
}

// maxSharers is how many holders of one lock a page shows, the most urgent first.
const maxSharers = 100

func (d *Pages) shared(r *site.Request, v *site.Lock) (site.Answer, error) {
	c := r.Caller
	u := locks.UseOf(v.Shares)
	p := sharedPage{Page: d.Page(r, v.LockName), Name: v.LockName, Look: u.Display, Use: u.Words(), Other: u.OtherLimit,
		Recorded: d.Config.Waiters != nil, Asked: v.AskedHold != ""}
	p.Follows = true
	p.Here = "list"
	p.Back = d.Urls.Back(FromView(d.Urls, r))
	p.JSON = d.Urls.LockAPI(v.LockName)
	p.Past = d.Urls.To("history", "q", locks.FieldTerm("name", v.LockName+"#*"))
	if p.Icon.Look != "stale" {
		p.Icon = site.Icon{Look: u.Display}
	}
	l := ListRequest{Query: locks.ParseQuery(""), Order: locks.Order{By: locks.MostUrgent}, Limit: defaultLimit,
		full: true}
	holders := l.Order.Sort(slices.Clone(v.Shares))
	p.More = max(0, len(holders)-maxSharers)
	p.Table = d.newTable(c, holders[:len(holders)-p.More], p.Viewpoint, l)
	p.Table.Caption = "Holders"
	for i := range p.Table.Columns {
		p.Table.Columns[i].URL, p.Table.Columns[i].Aria = "", "" // they are in one order
	}
	p.Waiters = d.WaiterViews(v.InLine, p.Viewpoint)
	p.Cycles = d.cyclesOf(r, v.LockName)
	body, err := d.Render("shared", p)
	return site.Answer{Type: site.TypeHTML, Body: body}, err
}

// WholeLock is the lock of which a hold is a part.
type WholeLock struct {
	Name, URL string
	Use       string
}

// Whole is nil for a hold that shares nothing.
func (d *Pages) Whole(r *site.Request, row *locks.Row) *WholeLock {
	if row.Share == nil || row.Share.Lock == "" {
		return nil
	}
	w := &WholeLock{Name: row.Share.Lock, URL: d.Urls.Lock(row.Share.Lock, "")}
	if holders := r.Snapshot().Shares(row.Share.Lock); len(holders) > 0 {
		w.Use = locks.UseOf(holders).Words()
	}
	return w
}
