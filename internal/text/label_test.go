package text_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/text"
)

func TestLabels(t *testing.T) {
	long := strings.Repeat("é", 100)
	for _, c := range []struct{ name, text, label, lock string }{
		{"plain text stays as it is", "billing/invoice/42 naïve 日本語", "billing/invoice/42 naïve 日本語",
			"billing/invoice/42 naïve 日本語"},
		{"128 bytes stay as they are", strings.Repeat("x", 128), strings.Repeat("x", 128), strings.Repeat("x", 128)},
		{"what does not show is replaced", "a\n\x1b\u202eb", "a\ufffd\ufffd\ufffdb", "a\ufffd\ufffd\ufffdb~47afe97d"},
		{"what is no text is replaced", "\xff", "\ufffd", "\ufffd~7a0b824e"},
		{"what is long is cut between characters", "x" + long, "x" + long[:126], "x" + long[:118] + "~ad2f8cc7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := text.Label(c.text); got != c.label {
				t.Errorf("Label: %q, want %q", got, c.label)
			}
			if got := text.NameLabel(c.text); got != c.lock {
				t.Errorf("NameLabel: %q, want %q", got, c.lock)
			}
		})
	}
}

func FuzzLabels(f *testing.F) {
	f.Add("a")
	f.Add("\xff\xfe")
	f.Add(strings.Repeat("é", 200))
	f.Fuzz(func(t *testing.T, s string) {
		for _, label := range []string{text.Label(s), text.NameLabel(s)} {
			if len(label) > 128 || !utf8.ValidString(label) ||
				strings.ContainsFunc(label, func(r rune) bool { return !unicode.IsGraphic(r) }) {
				t.Errorf("%q became %q", s, label)
			}
		}
	})
}
