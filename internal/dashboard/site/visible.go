package site

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// IsPlain reports whether s is ASCII and its own visible form, so that it needs no markup; nearly all text does not.
func IsPlain(s string) bool { return !text.NonASCII(s) && text.Visible(s) == s }

// isPlainProse is [IsPlain] for a sentence whose parts from outside are escaped already.
func isPlainProse(s string) bool { return !text.NonASCII(s) && text.Prose(s) == s }

// nonASCII reports whether a name holds characters that can pass for others; the page marks such names.
func nonASCII(name string) bool {
	const ellipsis = "…"
	if len(name) == MaxNameShown+len(ellipsis) {
		name = strings.TrimSuffix(name, ellipsis) // of text.Clip
	}
	return text.NonASCII(name)
}

// BoxText is text for an input of one line: as it was typed, without what no keyboard types there.
func BoxText(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(s, string(utf8.RuneError)))
}

// How much of a text a list shows, in bytes. The page of the lock shows all.
const (
	MaxNameShown = metadata.MaxNameBytes
	MaxWordShown = 80
	MaxLineShown = 240
)

// How long the texts of a force unlock may be, in characters.
const (
	MaxReason = 500
	MaxTicket = 100
)

// MaxLogged is how much of a text from a request the log takes, in bytes.
const MaxLogged = 256

// Logged is a text from a request as it stands in the log.
func Logged(s string) string { return text.Visible(text.Clip(s, MaxLogged)) }

// HostPID is a process in a list.
func HostPID(host string, pid int64) string { return locks.HostPID(text.Clip(host, MaxWordShown), pid) }
