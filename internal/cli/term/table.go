package cli

import (
	"bufio"
	"io"
	"slices"
	"strings"
)

// cell is one cell of a table: visible text, and the colour that a terminal shows it in.
type cell struct {
	text  string
	paint paint
}

// paint is a terminal's colour as the sequence that switches it on; "" is none.
type paint string

const (
	paintNone   paint = ""
	paintRed    paint = "\x1b[31m"
	paintYellow paint = "\x1b[33m"
	paintOff    paint = "\x1b[0m"
)

// cellColumns is the most that a cell with others behind it takes: one long name must not push the columns of all rows
// off the screen.
const cellColumns = 80

// table is aligned text for people. The first row is the header.
type table struct {
	coloured bool
	rows     [][]cell
}

func (t *table) row(texts ...string) {
	row := make([]cell, len(texts))
	for i, text := range texts {
		if i < len(texts)-1 {
			text = clip(text, cellColumns)
		}
		row[i] = cell{text: text}
	}
	t.rows = append(t.rows, row)
}

// dropEmpty takes out the column with this header when nothing is in it.
func (t *table) dropEmpty(header string) {
	column := slices.IndexFunc(t.rows[0], func(c cell) bool { return c.text == header })
	for _, row := range t.rows[1:] {
		if row[column].text != none {
			return
		}
	}
	for i, row := range t.rows {
		t.rows[i] = slices.Delete(row, column, column+1)
	}
}

// paint colours the first cell of the last row.
func (t *table) paint(p paint) { t.rows[len(t.rows)-1][0].paint = p }

// write writes the table with two blanks between its columns and none at the end of a line.
func (t *table) write(w io.Writer) error {
	widths := t.widths()
	out := bufio.NewWriter(w)
	for _, row := range t.rows {
		for i, c := range row {
			gap := ""
			if i < len(row)-1 {
				gap = strings.Repeat(" ", widths[i]-columns(c.text)+2)
			}
			out.WriteString(t.painted(c) + gap)
		}
		out.WriteByte('\n')
	}
	return out.Flush()
}

func (t *table) widths() []int {
	var widths []int
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], columns(c.text))
		}
	}
	return widths
}

func (t *table) painted(c cell) string {
	if !t.coloured || c.paint == paintNone {
		return c.text
	}
	return string(c.paint) + c.text + string(paintOff)
}
