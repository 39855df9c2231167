package term

import (
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	xterm "golang.org/x/term"
)

// defaultColumns is the assumed width of a terminal that does not report one.
const defaultColumns = 80

// Width returns the number of columns of the terminal, from $COLUMNS or the terminal itself; 0 if the file is no
// terminal.
func Width(f *os.File) int {
	if !IsTerminal(f) {
		return 0
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if n, _, err := xterm.GetSize(int(f.Fd())); err == nil && n > 0 {
		return n
	}
	return defaultColumns
}

// narrowColumn is how far a column is cut before another is dropped.
const narrowColumn = 16

// Fit makes the table as narrow as the terminal. It cuts the widest columns; if they would become too narrow, it first
// drops the columns with these headers, in this order, as few as necessary. It returns a note about what is missing.
func (t *Table) Fit(width int, drop ...string) string {
	if width == 0 || len(t.rows) < 2 {
		return ""
	}
	var dropped, cut []string
	for _, header := range drop {
		column := t.column(header)
		if column >= 0 && total(t.widths(), narrowColumn) > width {
			t.drop(column)
			dropped = append(dropped, header)
		}
	}
	widths := t.widths()
	for over := total(widths, math.MaxInt) - width; over > 0; over-- {
		widths[slices.Index(widths, slices.Max(widths))]--
	}
	for column, columns := range widths {
		if t.clipColumn(column, columns) {
			cut = append(cut, t.rows[0][column].text)
		}
	}
	var parts []string
	if len(cut) > 0 {
		parts = append(parts, strings.Join(cut, ", ")+" cut")
	}
	if len(dropped) > 0 {
		parts = append(parts, "without "+strings.Join(dropped, ", "))
	}
	if parts == nil {
		return ""
	}
	return strconv.Itoa(width) + " columns: " + strings.Join(parts, ", ") + "; -o wide has all"
}

// total returns the width of a table whose columns have these widths, at most widest.
func total(widths []int, widest int) int {
	total := -gap
	for _, w := range widths {
		total += min(w, widest) + gap
	}
	return total
}

// column returns the index of the column with this header; -1 if there is none.
func (t *Table) column(header string) int {
	return slices.IndexFunc(t.rows[0], func(c cell) bool { return c.text == header })
}

func (t *Table) drop(column int) {
	for i, row := range t.rows {
		t.rows[i] = slices.Delete(row, column, column+1)
	}
}

// clipColumn cuts the cells of a column, and reports whether anything was cut. It keeps both ends, because names that
// begin alike differ at the end; but of the last column, which has sentences, the beginning.
func (t *Table) clipColumn(column, columns int) (cut bool) {
	clip := clipMiddle
	if column == len(t.rows[0])-1 {
		clip = Clip
	}
	for _, row := range t.rows[1:] {
		whole := row[column].text
		row[column].text = clip(whole, columns)
		cut = cut || row[column].text != whole
	}
	return cut
}

// clipMiddle shortens visible text to this many columns, in its middle.
func clipMiddle(s string, columns int) string {
	if Columns(s) <= columns {
		return s
	}
	end := columns / 2 // a host with its pid keeps the pid
	return Clip(s, columns-end) + width().TruncateLeft(s, Columns(s)-end, "")
}
