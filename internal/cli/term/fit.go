package term

import (
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

// NarrowStep is one way to make a table narrower: see [Cut] and [Drop].
type NarrowStep struct {
	header     string
	minColumns int
}

// Cut is the step that cuts the cells below this header, to no less than minColumns.
func Cut(header string, minColumns int) NarrowStep { return NarrowStep{header, minColumns} }

// Drop is the step that removes the column with this header.
func Drop(header string) NarrowStep { return NarrowStep{header: header} }

// Fit makes the table as narrow as the terminal: it takes the steps in order, as few as necessary. It returns a note
// about what was cut; empty if nothing was.
func (t *Table) Fit(width int, steps []NarrowStep) string {
	if width == 0 || len(t.rows) < 2 {
		return ""
	}
	var dropped, cut []string
	for _, step := range steps {
		over := t.width() - width
		column := slices.IndexFunc(t.rows[0], func(c cell) bool { return c.text == step.header })
		switch {
		case over <= 0 || column < 0:
		case step.minColumns == 0:
			t.drop(column)
			dropped = append(dropped, step.header)
			cut = slices.DeleteFunc(cut, func(s string) bool { return s == step.header })
		case t.clipColumn(column, max(step.minColumns, t.widths()[column]-over)) && !slices.Contains(cut, step.header):
			cut = append(cut, step.header)
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

func (t *Table) width() int {
	total := -gap
	for _, w := range t.widths() {
		total += w + gap
	}
	return total
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
