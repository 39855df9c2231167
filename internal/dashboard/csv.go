package dashboard

import (
	"bytes"
	"encoding/csv"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxCSV is how many locks a CSV holds.
const maxCSV = 100_000

// csv answers with the locks that a query finds, in its order. Other than the page it has no pages.
func (d *Dashboard) csv(r *http.Request) (answer, error) {
	_, _, found, err := d.listed(r)
	if err != nil {
		return answer{}, err
	}
	rows := [][]string{{"name", "state", "owner", "hostname", "pid", "purpose", "hold", "token", "locked_at", "alert_at", "auto_unlock_at", "waiters", "waiting_since"}}
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return iso(t)
	}
	for _, row := range found.rows[:min(len(found.rows), maxCSV)] {
		waiters := ""
		if d.config.Queues != nil {
			waiters = strconv.Itoa(row.waiters)
		}
		line := []string{row.Name, string(row.verdict.State), row.Owner, row.Hostname, number64(row.PID), row.Purpose, row.UUID, number64(row.Token),
			at(row.LockedAt), at(row.verdict.AlertAt), at(row.verdict.AutoUnlockAt), waiters, at(row.longest)}
		for i := range line {
			line[i] = cell(line[i])
		}
		rows = append(rows, line)
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	if err := w.WriteAll(rows); err != nil {
		return answer{}, err
	}
	return answer{Type: "text/csv; charset=utf-8; header=present", Body: b.Bytes(),
		Header: map[string]string{"Content-Disposition": `attachment; filename="locks.csv"`}}, nil
}

// cell makes a text harmless for programs that take the first character of a cell for the begin of a formula, and for terminals.
func cell(text string) string {
	text = plain(text)
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}
