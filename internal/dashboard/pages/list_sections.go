package pages

import (
	"slices"
	"sort"
	"strconv"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/text"
)

// section is a part of a list that is sorted by urgency.
type section struct {
	Title   string
	one, of string // in the sum above the list: 1 needs you, 2 need you
	N       int    // locks in it, on all pages
}

// String returns the section in the sum above the list.
func (s section) String() string { return app.Plural(s.N, s.one, s.of) }

// sections returns those of a list, with the free locks that nobody takes. While auto-unlock is paused, or etcd is
// silent, nothing is said to resolve itself.
func (p *Pages) sections(r *app.Request, found *locks.Result, free []diagnosis.Unclaimed) []section {
	all := []section{{Title: "Needs you", one: "needs you", of: "need you"},
		{Title: "Resolves itself", one: "resolves itself", of: "resolve themselves"},
		{Title: "On time", one: "on time", of: "on time"},
		{Title: "Of other libraries", one: "of another library", of: "of other libraries"}}
	if c := p.headlineInput(r); !c.RemovalsContinue() {
		all[locks.ResolvesItself] = section{Title: "Pending auto-unlock", one: "pending auto-unlock",
			of: "pending auto-unlock"}
	}
	for _, row := range found.Rows {
		all[found.Class(row).Section()].N++
	}
	all[locks.NeedsYou].N += len(free)
	return all
}

// fillSections divides the table into the sections.
func (p *Pages) fillSections(v *listPage, r *app.Request, found *locks.Result, w locks.Window,
	free []diagnosis.Unclaimed) {
	at := func(class locks.Class) int {
		return sort.Search(len(w.Rows), func(i int) bool { return found.Class(w.Rows[i]) >= class })
	}
	views := v.Table.Parts[0].Rows
	if w.First == 0 {
		for i := range slices.Backward(free) {
			views = slices.Insert(views, at(locks.ClassUnclaimed), p.freeRow(r, &free[i]))
		}
	}
	added := len(views) - len(w.Rows)
	ends := []int{added + at(locks.ClassLeaving), added + at(locks.ClassOnTime), added + at(locks.ClassLeased),
		len(views)}
	v.Table.Parts = nil
	from := 0
	for i, to := range ends {
		if to > from {
			v.Table.Parts = append(v.Table.Parts, tablePart{section: v.Sections[i], ID: "section-" + strconv.Itoa(i),
				Rows: views[from:to]})
		}
		from = max(from, to)
	}
}

// freeIn returns the free locks that the query finds and that nobody takes.
func (p *Pages) freeIn(r *app.Request, q *locks.Query) (found []diagnosis.Unclaimed) {
	for _, free := range p.Unclaimed(r) {
		if r.Snapshot().Finds(q, free.Name, r.Viewpoint().AsOf) {
			found = append(found, free)
		}
	}
	return found
}

// freeRow returns a free lock that nobody takes, beside those that somebody holds.
func (p *Pages) freeRow(r *app.Request, free *diagnosis.Unclaimed) rowView {
	first := &free.First.Identity
	v := rowView{
		State: locks.ClassUnclaimed.String(), Version: strconv.Itoa(free.Waiters),
		Name:  text.Clip(free.Name, app.MaxNameShown),
		Owner: text.Clip(first.Owner, app.MaxWordShown), Host: app.HostPID(first.Hostname, first.PID),
		About:   []string{"first in line, does not take it"},
		Matter:  app.Plain("free ").Time(r.Viewpoint().Elapsed(free.Since)),
		Outcome: app.Plain("never"), Waiters: free.Waiters,
		URL: p.app.URLs.Lock(free.Name, ""),
	}
	v.cutName(false)
	return v
}
