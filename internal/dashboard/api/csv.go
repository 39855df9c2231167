package api

import (
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/dashboard/intervals"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/text"
)

// ServeTable answers with the locks that a query finds, in its order. Other than the page it has no pages.
func (a *API) ServeTable(r *site.Request) (site.Answer, error) {
	l, err := a.list(r)
	if err != nil {
		return site.Answer{}, err
	}
	heads := []string{"name", "state", "owner", "hostname", "pid", "purpose", "hold", "token", "locked_at",
		"alert_at", "auto_unlock_at", "waiters", "waiting_since"}
	if r.Several() {
		heads = append(heads, "cluster")
	}
	return table("locks.csv", heads, l.found.Rows, func(cells []string, row **locks.Row) []string {
		cells = lockCells(cells, *row)
		if r.Several() {
			cells = append(cells, (*row).Cluster)
		}
		return cells
	}), nil
}

func lockCells(cells []string, row *locks.Row) []string {
	v := row.Verdict()
	return append(cells, row.Name, string(v.State), row.Owner, row.Hostname,
		phrase.Known(row.PID), row.Purpose, row.UUID, phrase.Known(row.Token), instantCell(row.LockedAt),
		instantCell(v.AlertAt), instantCell(v.AutoUnlockAt), strconv.Itoa(row.Waiters), instantCell(row.Longest))
}

// ServeTimeline answers with who held and who waited within a window, as the page of that name.
func (a *API) ServeTimeline(r *site.Request) (site.Answer, error) {
	past, err := a.pages.Recall(r)
	heads := []string{"cluster", "lock", "name", "kind", "owner", "hostname", "pid", "hold", "token", "begin_at",
		"end_at", "alert_at", "ended"}
	return table("timeline.csv", heads, past.All, intervalCells), err
}

// table is an answer that is written row by row; cells appends those of a row.
func table[T any](name string, heads []string, rows []T, cells func(to []string, row *T) []string) site.Answer {
	return site.Answer{Type: "text/csv; charset=utf-8; header=present",
		Header: map[string]string{"Content-Disposition": `attachment; filename="` + name + `"`},
		Stream: func(w io.Writer) error {
			line := appendCells(nil, heads...)
			_, err := w.Write(line)
			var row []string
			for i := 0; i < len(rows) && err == nil; i++ {
				row = cells(row[:0], &rows[i])
				line = appendCells(line[:0], row...)
				_, err = w.Write(line)
			}
			return err
		}}
}

func intervalCells(cells []string, i *intervals.Interval) []string {
	kind := "hold"
	hold := i.ID
	ended := i.Ended
	if i.Wait {
		kind = "wait"
		hold = "" // a ticket is no hold
		ended = waitEnded(i)
	}
	return append(cells, i.Cluster, i.Lock, i.Name, kind, i.Owner, i.Host, phrase.Known(i.PID), hold,
		phrase.Known(i.Token), instantCell(i.Begin), instantCell(i.End), instantCell(i.Alert), ended)
}

// waitEnded is how a wait ended; empty while it lasts.
func waitEnded(i *intervals.Interval) string {
	switch {
	case i.End.IsZero():
		return ""
	case i.Taken:
		return "taken"
	}
	return "gave_up"
}

func instantCell(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return phrase.ISO(t)
}

// appendCells appends a line of a table. Every cell is quoted, so that a program which takes another character than the
// comma for the separator finds no more cells in one than there are.
func appendCells(line []byte, cells ...string) []byte {
	for i, text := range cells {
		if i > 0 {
			line = append(line, ',')
		}
		line = append(line, '"')
		if harmless(text) {
			line = append(line, text...)
		} else {
			line = appendCell(line, text)
		}
		line = append(line, '"')
	}
	return append(line, '\n')
}

// harmless reports whether there is nothing to change in the text of a cell; it may not know of some.
func harmless(text string) bool {
	for i := range len(text) {
		c := text[i]
		if c <= ' ' || c > '~' || c == '"' || c == ';' || c == '\\' || i == 0 && strings.IndexByte(formula, c) >= 0 {
			return false
		}
	}
	return true
}

// formula has the characters that begin a formula in spreadsheets; some accept the full-width forms.
const formula = "=+-@＝＋－＠﹦﹢﹣﹫−"

// appendCell makes a text harmless for such programs, and for terminals: an apostrophe stands before what they could
// take for the begin of a formula, at the begin and after a semicolon, at which some cut the line whatever is quoted.
func appendCell(line []byte, cell string) []byte {
	begins := true
	for _, c := range text.Visible(cell) {
		switch {
		case begins && strings.ContainsRune(formula, c):
			line = append(line, '\'')
			begins = false
		case c == ';':
			begins = true
		case c != '"' && !unicode.IsSpace(c):
			begins = false
		}
		if c == '"' {
			line = append(line, '"')
		}
		line = utf8.AppendRune(line, c)
	}
	return line
}
