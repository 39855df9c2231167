// Package term writes to terminals: tables, columns, colours, and the flag for the output format.
package term

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"
	"github.com/spf13/cobra"
	xterm "golang.org/x/term"

	"github.com/clustermutex/unlocker/internal/text"
)

// cell is one cell of a table: visible text, and the colour in which a terminal shows it.
type cell struct {
	text   string
	colour Colour
}

// Colour is the escape sequence that switches a colour on.
type Colour string

// The colours of cells.
const (
	NoColour    Colour = ""
	Red         Colour = "\x1b[31m"
	Yellow      Colour = "\x1b[33m"
	resetColour Colour = "\x1b[0m"
)

// CellColumns is the maximum width of a column: a cell that is wider shifts the rest of its row, so that one long name
// does not push the columns of all rows off the screen.
const CellColumns = 80

// gap is the number of blanks between two columns.
const gap = 2

// Table is aligned text. Its first row may be a header.
type Table struct {
	Coloured bool
	rows     [][]cell
}

// Row adds a row of visible texts.
func (t *Table) Row(texts ...string) {
	row := make([]cell, len(texts))
	for i, text := range texts {
		row[i] = cell{text: text}
	}
	t.rows = append(t.rows, row)
}

// DropEmpty removes those of the columns with these headers that are empty.
func (t *Table) DropEmpty(headers ...string) {
	for _, header := range headers {
		column := t.column(header)
		isSet := func(row []cell) bool { return row[column].text != None }
		if !slices.ContainsFunc(t.rows[1:], isSet) {
			t.drop(column)
		}
	}
}

// Paint colours a cell of the last row.
func (t *Table) Paint(column int, c Colour) { t.rows[len(t.rows)-1][column].colour = c }

// Write writes the table, with two blanks between columns and none at the end of a line, unless it has only a header.
func (t *Table) Write(w io.Writer) error {
	if len(t.rows) < 2 {
		return nil
	}
	widths := t.widths()
	out := bufio.NewWriter(w)
	for _, row := range t.rows {
		for i, c := range row {
			out.WriteString(t.withColour(c))
			if i < len(row)-1 {
				blanks := max(0, min(widths[i], CellColumns)-Columns(c.text)) + gap
				out.WriteString(strings.Repeat(" ", blanks))
			}
		}
		out.WriteByte('\n')
	}
	return out.Flush()
}

func (t *Table) widths() []int {
	var widths []int
	for _, row := range t.rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], Columns(c.text))
		}
	}
	return widths
}

func (t *Table) withColour(c cell) string {
	if !t.Coloured || c.colour == NoColour {
		return c.text
	}
	return string(c.colour) + c.text + string(resetColour)
}

// The output formats.
const (
	TableFormat = "table"
	WideFormat  = "wide" // a table in which nothing is cut
	JSONFormat  = "json"
	NameFormat  = "name"
)

// Format is the value of the --output flag.
type Format struct {
	value   string
	allowed []string
}

// Output defines the --output flag of the command, with these formats; the first is the default.
func Output(cmd *cobra.Command, formats ...string) *Format {
	f := &Format{value: formats[0], allowed: formats}
	described := strings.Replace(strings.Join(formats, ", "), JSONFormat, `json (see "mutexctl help json")`, 1)
	cmd.Flags().VarP(f, "output", "o", "output format: "+described)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return f
}

// String returns the chosen format.
func (f *Format) String() string { return f.value }

// Type returns the name of the value in help texts.
func (f *Format) Type() string { return "format" }

// Set sets the format.
func (f *Format) Set(s string) error {
	if !slices.Contains(f.allowed, s) {
		return fmt.Errorf("want one of %s", strings.Join(f.allowed, ", "))
	}
	f.value = s
	return nil
}

// JSON reports whether the output is for programs.
func (f *Format) JSON() bool { return f.value == JSONFormat }

// Lines returns the lines of a text in visible form. Indentation is kept, with tabs as blanks.
func Lines(s string) []string {
	var out []string
	for line := range strings.SplitSeq(strings.TrimRight(s, "\n"), "\n") {
		trimmed := strings.TrimLeft(line, " \t")
		indent := strings.ReplaceAll(line[:len(line)-len(trimmed)], "\t", "    ")
		out = append(out, indent+text.Visible(trimmed))
	}
	return out
}

// width counts terminal columns independently of the locale, so that a table looks the same everywhere.
func width() *runewidth.Condition { return &runewidth.Condition{StrictEmojiNeutral: true} }

// Columns returns how many terminal columns visible text takes.
func Columns(s string) int { return width().StringWidth(s) }

// Clip shortens visible text to this many columns; an ellipsis marks the cut.
func Clip(s string, columns int) string { return width().Truncate(s, columns, "…") }

// None stands for an unknown value in a table.
const None = "-"

// TakesColours reports whether output to the file should be coloured: it is a terminal, and its user has not opted out
// (no-color.org).
func TakesColours(f *os.File) bool {
	return IsTerminal(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// IsTerminal reports whether the file is a terminal.
func IsTerminal(f *os.File) bool { return xterm.IsTerminal(int(f.Fd())) }
