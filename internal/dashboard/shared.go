package dashboard

import (
	"slices"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
)

// sharedPage is the page of a lock that several hold: it has no record of its own.
type sharedPage struct {
	page
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

func (d *Dashboard) shared(r *request, v *lockView) (answer, error) {
	c := r.caller
	u := locks.UseOf(v.shares)
	p := sharedPage{page: d.page(r, v.lock), Name: v.lock, Look: u.Display, Use: u.Words(), Other: u.OtherLimit,
		Recorded: d.config.Waiters != nil, Asked: v.asked != ""}
	p.Follows, p.Here, p.Back, p.JSON = true, "list", d.urls.Back(v.view), d.urls.LockAPI(v.lock)
	p.Past = d.urls.To("history", "q", locks.FieldTerm("name", v.lock+"#*"))
	if p.Icon.Look != "stale" {
		p.Icon = icon{Look: u.Display}
	}
	l := listRequest{query: locks.ParseQuery(""), order: locks.Order{By: locks.MostUrgent}, limit: defaultLimit, full: true}
	holders := l.order.Sort(slices.Clone(v.shares))
	p.More = max(0, len(holders)-maxSharers)
	p.Sheet = d.sheet(c, holders[:len(holders)-p.More], p.Viewpoint, l)
	p.Sheet.Caption = "Holders"
	for i := range p.Sheet.Columns {
		p.Sheet.Columns[i].URL, p.Sheet.Columns[i].Aria = "", "" // they are in one order
	}
	p.Waiters = d.waiterViews(v.waiters, p.Viewpoint)
	p.Cycles = d.cyclesOf(r, v.lock)
	body, err := d.render("shared", p)
	return answer{Type: typeHTML, Body: body}, err
}

// wholeLock is the lock of which a hold is a part.
type wholeLock struct {
	Name, URL string
	Use       string
}

// whole is nil for a hold that shares nothing.
func (d *Dashboard) whole(r *request, row *locks.Row) *wholeLock {
	if row.Share == nil || row.Share.Lock == "" {
		return nil
	}
	w := &wholeLock{Name: row.Share.Lock, URL: d.urls.Lock(row.Share.Lock, "")}
	if holders := r.snapshot().Shares(row.Share.Lock); len(holders) > 0 {
		w.Use = locks.UseOf(holders).Words()
	}
	return w
}
