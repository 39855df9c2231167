package dashboard

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// csv answers with the locks that a query finds, in its order. Other than the page it has no pages.
func (d *Dashboard) csv(r *http.Request) (answer, error) {
	_, _, found, err := d.listed(r)
	if err != nil {
		return answer{}, err
	}
	return answer{Type: "text/csv; charset=utf-8; header=present", Header: map[string]string{"Content-Disposition": `attachment; filename="locks.csv"`},
		Stream: func(w io.Writer) error {
			err := writeCells(w, "name", "state", "owner", "hostname", "pid", "purpose", "hold", "token", "locked_at", "alert_at", "auto_unlock_at", "waiters", "waiting_since")
			for _, row := range found.rows {
				if err != nil {
					return err
				}
				waiters := ""
				if d.config.Queues != nil {
					waiters = strconv.Itoa(row.waiters)
				}
				err = writeCells(w, row.Name, string(row.verdict.State), row.Owner, row.Hostname, number64(row.PID), row.Purpose, row.UUID, number64(row.Token),
					instantCell(row.LockedAt), instantCell(row.verdict.AlertAt), instantCell(row.verdict.AutoUnlockAt), waiters, instantCell(row.longest))
			}
			return err
		}}, nil
}

func instantCell(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return iso(t)
}

// writeCells writes a line of a table. Every cell is quoted, so that a program which takes another character than the comma for the
// separator finds no more cells in one than there are.
func writeCells(w io.Writer, cells ...string) error {
	var line strings.Builder
	for i, text := range cells {
		if i > 0 {
			line.WriteByte(',')
		}
		line.WriteByte('"')
		writeCell(&line, text)
		line.WriteByte('"')
	}
	line.WriteByte('\n')
	_, err := io.WriteString(w, line.String())
	return err
}

// formula begins one, for programs that calculate; the wide forms do where people write them.
const formula = "=+-@＝＋－＠﹦﹢﹣﹫−"

// writeCell makes a text harmless for such programs, and for terminals: an apostrophe stands before what they could take for the begin of a
// formula, at the begin and after a semicolon, at which some cut the line whatever is quoted.
func writeCell(b *strings.Builder, text string) {
	begins := true
	for _, c := range plain(text) {
		switch {
		case begins && strings.ContainsRune(formula, c):
			b.WriteByte('\'')
			begins = false
		case c == ';':
			begins = true
		case c != '"' && !unicode.IsSpace(c):
			begins = false
		}
		if c == '"' {
			b.WriteByte('"')
		}
		b.WriteRune(c)
	}
}
