package term

import (
	"os"
	"slices"
	"strconv"
	"strings"

	xterm "golang.org/x/term"
)

// usualColumns is the width of a terminal that does not tell its own.
const usualColumns = 80

// Width is how many columns the terminal has: what COLUMNS says, or the terminal itself. 0 = the file is no terminal.
func Width(f *os.File) int {
	if !Is(f) {
		return 0
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if n, _, err := xterm.GetSize(int(f.Fd())); err == nil && n > 0 {
		return n
	}
	return usualColumns
}

// Height is how many rows the terminal has; 0 = the file is no terminal, or its height is not known.
func Height(f *os.File) int {
	if !Is(f) {
		return 0
	}
	_, n, err := xterm.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return n
}

// Less is a step that makes a table narrower.
type Less struct {
	header string
	least  int
}

// Cut cuts what is in a column, to no less than these columns.
func Cut(header string, least int) Less { return Less{header, least} }

// Drop leaves a column out.
func Drop(header string) Less { return Less{header: header} }

// Fit makes the table as narrow as the terminal, by as few of the steps as that takes, one after the other. It says
// what it did; empty if nothing was cut.
func (t *Table) Fit(width int, steps []Less) string {
	if width == 0 || len(t.rows) < 2 {
		return ""
	}
	var out, short []string
	for _, step := range steps {
		over := t.width() - width
		column := slices.IndexFunc(t.rows[0], func(c cell) bool { return c.text == step.header })
		switch {
		case over <= 0 || column < 0:
		case step.least == 0:
			t.drop(column)
			out = append(out, step.header)
			short = slices.DeleteFunc(short, func(s string) bool { return s == step.header })
		case t.shorten(column, max(step.least, t.widths()[column]-over)) && !slices.Contains(short, step.header):
			short = append(short, step.header)
		}
	}
	var said []string
	if len(short) > 0 {
		said = append(said, strings.Join(short, ", ")+" cut")
	}
	if len(out) > 0 {
		said = append(said, "without "+strings.Join(out, ", "))
	}
	if said == nil {
		return ""
	}
	return strconv.Itoa(width) + " columns: " + strings.Join(said, ", ") + "; -o wide has all"
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

// shorten cuts what is in a column, and reports whether anything was cut. Of names both ends are kept: those that begin
// alike differ at the end. The last column has sentences.
func (t *Table) shorten(column, most int) (cut bool) {
	clip := clipMiddle
	if column == len(t.rows[0])-1 {
		clip = Clip
	}
	for _, row := range t.rows[1:] {
		whole := row[column].text
		row[column].text = clip(whole, most)
		cut = cut || row[column].text != whole
	}
	return cut
}

// clipMiddle shortens visible text to most columns.
func clipMiddle(s string, most int) string {
	if Columns(s) <= most {
		return s
	}
	end := most / 3
	return Clip(s, most-end) + width().TruncateLeft(s, Columns(s)-end, "")
}
