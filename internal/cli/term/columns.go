package term

import (
	"strings"

	"github.com/mattn/go-runewidth"

	"github.com/clustermutex/unlocker/internal/text"
)

// Lines returns the lines of a text in visible form. Indentation stays, with tabs as blanks.
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

// Clip shortens visible text to most columns; an ellipsis marks the cut.
func Clip(s string, most int) string { return width().Truncate(s, most, "…") }
