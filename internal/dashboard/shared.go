package dashboard

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
	Sheet    sheet
	More     int // holders that are not shown
	Waiters  []waiterView
	Recorded bool
	Asked    bool   // for a hold that is over
	Past     string // link to the history of all shares
	Cycles   []cycleView
	Back     string
}

// maxSharers is how many holders of one lock a page shows, the most urgent first.
const maxSharers = 100

func (d *Dashboard) shared(r *site.Request, v *site.Lock) (site.Answer, error) {
	c := r.Caller
	u := locks.UseOf(v.Shares)
	p := sharedPage{Page: d.Page(r, v.LockName), Name: v.LockName, Look: u.Display, Use: u.Words(), Other: u.OtherLimit,
		Recorded: d.Config.Waiters != nil, Asked: v.AskedHold != ""}
	p.Follows, p.Here, p.Back, p.JSON = true, "list", d.Urls.Back(fromView(d.Urls, r)), d.Urls.LockAPI(v.LockName)
	p.Past = d.Urls.To("history", "q", locks.FieldTerm("name", v.LockName+"#*"))
	if p.Icon.Look != "stale" {
		p.Icon = site.Icon{Look: u.Display}
	}
	l := listRequest{query: locks.ParseQuery(""), order: locks.Order{By: locks.MostUrgent}, limit: defaultLimit, full: true}
	holders := l.order.Sort(slices.Clone(v.Shares))
	p.More = max(0, len(holders)-maxSharers)
	p.Sheet = d.sheet(c, holders[:len(holders)-p.More], p.Viewpoint, l)
	p.Sheet.Caption = "Holders"
	for i := range p.Sheet.Columns {
		p.Sheet.Columns[i].URL, p.Sheet.Columns[i].Aria = "", "" // they are in one order
	}
	p.Waiters = d.waiterViews(v.InLine, p.Viewpoint)
	p.Cycles = d.cyclesOf(r, v.LockName)
	body, err := d.Render("shared", p)
	return site.Answer{Type: site.TypeHTML, Body: body}, err
}

// wholeLock is the lock of which a hold is a part.
type wholeLock struct {
	Name, URL string
	Use       string
}

// whole is nil for a hold that shares nothing.
func (d *Dashboard) whole(r *site.Request, row *locks.Row) *wholeLock {
	if row.Share == nil || row.Share.Lock == "" {
		return nil
	}
	w := &wholeLock{Name: row.Share.Lock, URL: d.Urls.Lock(row.Share.Lock, "")}
	if holders := r.Snapshot().Shares(row.Share.Lock); len(holders) > 0 {
		w.Use = locks.UseOf(holders).Words()
	}
	return w
}
