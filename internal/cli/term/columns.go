package term

import (
	"strings"

	"github.com/mattn/go-runewidth"

	"github.com/clustermutex/unlocker/internal/text"
)

// Lines are the lines of a longer text in visible form; the blanks and tabs that indent a line stay, as blanks.
func Lines(s string) []string {
	var out []string
	for line := range strings.SplitSeq(strings.TrimRight(s, "\n"), "\n") {
		trimmed := strings.TrimLeft(line, " \t")
		indent := strings.ReplaceAll(line[:len(line)-len(trimmed)], "\t", "    ")
		out = append(out, indent+text.Visible(trimmed))
	}
	return out
}

// width counts terminal columns. It is the same whatever the locale of the process: the same table must not look
// different elsewhere.
func width() *runewidth.Condition { return &runewidth.Condition{StrictEmojiNeutral: true} }

// Columns is the number of terminal columns that visible text takes.
func Columns(s string) int { return width().StringWidth(s) }

// Clip shortens visible text to most columns; an ellipsis marks the cut.
func Clip(s string, most int) string { return width().Truncate(s, most, "…") }
