package locks

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"sort"
)

// cursor is a position between two rows of a list, as it travels in a link.
type cursor struct {
	position
	List string `json:"l"` // fingerprint of query and order
}

// ListID is the fingerprint that ties a cursor to its list.
func ListID(q *Query, o Order) string {
	sum := sha256.Sum256([]byte(o.String() + "\n" + q.Text))
	return hex.EncodeToString(sum[:4])
}

func (p position) cursor(list string) string {
	// Names may be invalid UTF-8, which JSON text cannot hold.
	p.Name = base64.RawStdEncoding.EncodeToString([]byte(p.Name))
	p.Text = base64.RawStdEncoding.EncodeToString([]byte(p.Text))
	b, err := json.Marshal(cursor{p, list})
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseCursor reads a cursor back; ok is false for a cursor of another list, and for what is none.
func ParseCursor(s, list string) (p position, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return p, false
	}
	var c cursor
	if json.Unmarshal(b, &c) != nil || c.List != list {
		return p, false
	}
	name, err1 := base64.RawStdEncoding.DecodeString(c.Name)
	text, err2 := base64.RawStdEncoding.DecodeString(c.Text)
	c.Name = string(name)
	c.Text = string(text)
	return c.position, err1 == nil && err2 == nil
}

// Window is a page of a result.
type Window struct {
	Rows       []*Row
	First      int    // rank of the first row, from 0
	Prev, Next string // cursors; empty at the ends
}

// Window cuts a page out: after a cursor, before one, or from the start.
func (r *Result) Window(o Order, list, after, before string, limit int) Window {
	from := 0
	if p, ok := ParseCursor(after, list); ok {
		from = min(r.search(o, p, 1), max(0, len(r.Rows)-1))
	} else if p, ok := ParseCursor(before, list); ok {
		from = max(0, r.search(o, p, 0)-limit)
	}
	w := Window{Rows: r.Rows[from:min(from+limit, len(r.Rows))], First: from}
	if from > 0 {
		w.Prev = o.position(w.Rows[0]).cursor(list)
	}
	if from+limit < len(r.Rows) {
		w.Next = o.position(w.Rows[limit-1]).cursor(list)
	}
	return w
}

// search returns the index of the first row that compares to p with at least atLeast.
func (r *Result) search(o Order, p position, atLeast int) int {
	return sort.Search(len(r.Rows), func(i int) bool {
		at := o.position(r.Rows[i])
		return o.compare(&at, &p) >= atLeast
	})
}
