package pages

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/text"
)

// table is a table of locks.
type table struct {
	Caption string
	Columns []column
	Wide    int // columns that a second line spans
	Rows    []rowView
}

func (p *Pages) newTable(r *site.Request, rows []*locks.Row, l ListRequest) table {
	t := table{Columns: p.columns(l), Rows: make([]rowView, len(rows))}
	if r.Several() {
		t.Columns = append(t.Columns, column{Title: "Cluster"})
	}
	t.Wide = len(t.Columns) - 1
	view := l.view(p.site.URLs)
	looked := map[string]*look{}
	for i, row := range rows {
		at := looked[row.Cluster]
		if at == nil {
			at = p.lookAt(r, row.Cluster)
			looked[row.Cluster] = at
		}
		t.Rows[i] = p.rowView(at.caller, row, at.point, l)
		t.Rows[i].Wide = t.Wide
		t.Rows[i].URL = at.urls.LockFrom(row.Name, row.UUID, view)
		if r.Several() {
			t.Rows[i].Away = at.point.Stale
			t.Rows[i].Extra = append(t.Rows[i].Extra, extra{Title: "cluster", Text: at.cluster})
		}
	}
	return t
}

// look is what the rows of a cluster have in common.
type look struct {
	caller  access.Caller
	point   phrase.Viewpoint
	urls    site.URLs
	cluster string // for people, where there are several
}

func (p *Pages) lookAt(r *site.Request, cluster string) *look {
	part := r
	if r.Several() {
		part, _ = r.Part(cluster)
	}
	return &look{part.Caller, part.Viewpoint(), part.Site.URLs, part.Site.Config.Cluster.Shown()}
}

// clusterOf is a cluster for people; empty where there is only one.
func (p *Pages) clusterOf(r *site.Request, cluster string) string {
	if !r.Several() {
		return ""
	}
	return p.lookAt(r, cluster).cluster
}

// extra is a cell of a column that was asked for.
type extra struct {
	Title string
	Text  string
	Time  *phrase.Moment
}

// extraColumns are the columns that a list can have on top of its own.
func extraColumns() []string {
	return []string{"purpose", "hold", "token", "revision", "alive", "labels"}
}

// parseColumns reads "purpose,token"; what is no column is left out.
func parseColumns(text string) []string {
	var cols []string
	for _, name := range extraColumns() { // each once, in their order
		if slices.Contains(strings.Split(text, ","), name) {
			cols = append(cols, name)
		}
	}
	return cols
}

func extras(r *locks.Row, at phrase.Viewpoint, cols []string) []extra {
	list := make([]extra, len(cols))
	for i, name := range cols {
		e := extra{Title: name}
		switch name {
		case "purpose":
			e.Text = text.Clip(r.Purpose, site.MaxLineShown)
		case "hold":
			e.Text = text.Clip(r.UUID, site.MaxWordShown)
		case "token":
			e.Text = phrase.Known(r.Token)
		case "revision":
			e.Text = phrase.Known(r.Revision)
		case "alive":
			if r.Alive != nil {
				e.Time = at.Lasting(r.Alive.At)
			}
		case "labels":
			e.Text = labels(r.Attributes)
		}
		list[i] = e
	}
	return list
}

// labels are the attributes in one line.
func labels(attributes map[string]any) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		all = append(all, name+"="+fmt.Sprint(attributes[name]))
	}
	return text.Clip(strings.Join(all, " "), site.MaxLineShown)
}

// toggled are the columns with one more, or less.
func toggled(cols []string, name string) []string {
	if slices.Contains(cols, name) {
		return slices.DeleteFunc(slices.Clone(cols), func(c string) bool { return c == name })
	}
	return parseColumns(strings.Join(append(slices.Clone(cols), name), ","))
}

// columns are the heads of the table; each is a link that sorts by it, and the other way round the second time.
func (p *Pages) columns(l ListRequest) []column {
	columns := []struct{ title, by string }{
		{"State", "urgency"}, {"Lock", "name"}, {"Owner", "owner"}, {"Host:pid", "host"}, {"Held", "held"},
		{"Alert", "alert"}, {"Auto-unlock", "unlock"}, {"Waiting", "waiters"},
	}
	out := make([]column, 0, len(columns)+len(l.cols))
	for _, c := range columns {
		o := locks.Order{By: c.by}
		aria := ""
		if l.Order.By == c.by {
			aria, o.Reverse = "ascending", !l.Order.Reverse
			if l.Order.Reverse {
				aria = "descending"
			}
		}
		out = append(out, column{c.title, l.link(p.site.URLs, func(l *ListRequest) { l.Order = o }), aria})
	}
	for _, name := range l.cols {
		out = append(out, column{Title: strings.ToUpper(name[:1]) + name[1:]})
	}
	return out
}
