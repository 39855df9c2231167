package text_test

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/text"
)

func TestVisibleShowsEveryByte(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"plain text stays as it is":          {"billing/invoice run", "billing/invoice run"},
		"letters of all scripts stay":        {"漢字 δοκιμή", "漢字 δοκιμή"},
		"an escape sequence is spelled out":  {"\x1b[2J", `\x1b[2J`},
		"a new line is no new line":          {"a\nb\r\t", `a\nb\r\t`},
		"C1 controls are controls":           {"\u009b31m", `\u009b31m`},
		"marks of direction are spelled out": {"\u202egnp.exe\u200f", `\u202egnp.exe\u200f`},
		"what is not seen is spelled out": {"a\u200bb\u2060\ufeff\u3164\u2800",
			`a\u200bb\u2060\ufeff\u3164\u2800`},
		"a variation of the same name shows": {"a\ufe0f", `a\ufe0f`},
		"a tag behind the last plane shows":  {"a\U000e0041", `a\U000e0041`},
		"bytes that are not UTF-8 are hex":   {"a\xffb\xc3", `a\xffb\xc3`},
		"the replacement character is one":   {"\ufffd", "\ufffd"},
		"a backslash is doubled":             {`a\x1b`, `a\\x1b`},
		"one blank is a blank":               {"a b", "a b"},
		"blanks do not play columns":         {" a   b ", `\x20a \x20\x20b\x20`},
		"a blank that does not break shows":  {"a\u00a0b", `a\u00a0b`},
		"a pile of marks is cut down to size": {"e" + strings.Repeat("\u0301", 6),
			"e" + strings.Repeat("\u0301", 4) + `\u0301\u0301`},
		"quotes need no escape":                   {`say "it's"`, `say "it's"`},
		"what is empty stays empty":               {"", ""},
		"a single blank is seen":                  {" ", `\x20`},
		"a NUL is seen":                           {"\x00", `\x00`},
		"DEL is seen":                             {"\x7f", `\x7f`},
		"a line separator does not separate":      {"a\u2028b", `a\u2028b`},
		"a private character may look like any":   {"\ue000", `\ue000`},
		"a surrogate in UTF-8 is three bad bytes": {"\xed\xa0\x80", `\xed\xa0\x80`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := text.Visible(c.in); got != c.want {
				t.Errorf("%+q becomes %s, want %s", c.in, got, c.want)
			}
		})
	}
}

func FuzzVisibleCanBeReadBackAndDrivesNoTerminal(f *testing.F) {
	for _, s := range []string{"", "a", `\`, "\x1b[2J", "a  b", "\xff", "\u202e", "e\u0301\u0301\u0301\u0301\u0301",
		`\x41`, `"'`, "\u3164"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		shown := text.Visible(s)
		for _, r := range shown {
			if !unicode.IsPrint(r) || unicode.In(r, unicode.Cf, unicode.Bidi_Control,
				unicode.Other_Default_Ignorable_Code_Point) {
				t.Errorf("%+q is shown with %U", s, r)
			}
		}
		if strings.Contains(shown, "  ") || strings.TrimSpace(shown) != shown {
			t.Errorf("%+q is shown as %q, with blanks that play columns", s, shown)
		}
		if back, err := text.Parse(shown); err != nil || back != s {
			t.Errorf("%+q is shown as %q, and read back as %+q, %v", s, shown, back, err)
		}
		for _, r := range text.Prose(s) {
			if !unicode.IsPrint(r) {
				t.Errorf("%+q is quoted with %U", s, r)
			}
		}
		var joined strings.Builder
		for _, span := range text.Spans(s) {
			joined.WriteString(span.Text)
		}
		if joined.String() != shown {
			t.Errorf("%+q is %q in pieces and %q in one", s, joined.String(), shown)
		}
	})
}

func TestUnquotableTextIsRefused(t *testing.T) {
	for _, s := range []string{`a\`, `\q`, `\x4`, `\u12`, "\xff", `\'`} {
		if name, err := text.Parse(s); err == nil {
			t.Errorf("%q was read as %q", s, name)
		}
	}
}

func TestEscapesAreMarked(t *testing.T) {
	want := []text.Span{{Text: `a\\`}, {Text: `\x1b\u202e`, Escape: true}, {Text: "z"}}
	if got := text.Spans("a\\\x1b\u202ez"); !slices.Equal(got, want) {
		t.Errorf("the pieces are %+v, want %+v", got, want)
	}
}

func TestCutKeepsWholeCharacters(t *testing.T) {
	for most, want := range map[int]string{0: "", 1: "a", 2: "a", 3: "a", 4: "a漢", 5: "a漢b", 9: "a漢b"} {
		if got := text.Cut("a漢b", most); got != want {
			t.Errorf("cut to %d bytes it is %q, want %q", most, got, want)
		}
	}
	if got := text.Cut("\x80\x80\x80\x80\x80\x80", 5); len(got) != 5 {
		t.Errorf("what is not UTF-8 was cut to %d bytes, want 5", len(got))
	}
	if got := text.Clip("abc", 2) + text.Clip("abc", 3); got != "ab…abc" {
		t.Errorf("clipped texts are %q", got)
	}
}

func TestGlobsMatchWholeNames(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"billing/*", "billing/a/b", true}, {"billing/*", "billing", false}, {"*", "", true}, {"?", "漢", true},
		{"a.c", "abc", false},
		{"a*c", "a\nc", true}, {"(", "(", true}, {"a", "ab", false}, {"[a-z]", "b", false}, {"a|b", "a", false},
		{"a*b*c", "aXbYc", true}, {"a*b*c", "acb", false}, {"*aab", "aaab", true}, {"?", "", false}, {"*?", "", false},
		{"a?c**", "a漢c", true}, {"a?c", "a漢", false}, {"?", "\xff", true}, {"", "", true},
	} {
		if got := (text.Globs{"never", c.pattern}).Match(c.name); got != c.want {
			t.Errorf("%q matches %q: %v, want %v", c.pattern, c.name, got, c.want)
		}
	}
}

func TestWordsAreShellSafe(t *testing.T) {
	for word, want := range map[string]string{
		"a/b-1":      "a/b-1",
		"":           "''",
		"it's":       `'it'\''s'`,
		"$(id) `x`":  "'$(id) `x`'",
		"-rf":        "-- '-rf'",
		"a\nb":       `$'a\x0ab'`,
		"\u202ex\\'": `$'\xe2\x80\xaex\\\''`,
		"ключ":       "'ключ'",
	} {
		if got := text.ShellOperand(word); got != want {
			t.Errorf("%q is %s, want %s", word, got, want)
		}
	}
}

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

func TestOnlyNamedAttributesBecomeLabels(t *testing.T) {
	got := text.AttributeLabels([]string{"service", "rows", "team"}, map[string]any{
		"team": "pay\u202ements\n" + strings.Repeat("x", 200), "rows": json.Number("12"), "secret": "x"})
	if len(got) != 3 || got[0] != "" || got[1] != "12" || !strings.HasPrefix(got[2], "pay\ufffdments\ufffdxx") ||
		len(got[2]) > 128 {
		t.Errorf("values %q", got)
	}
}

const day = 24 * time.Hour

func TestDurationsAreReadable(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration][2]string{
		0:                           {"0s", "0s ago"},
		-42 * time.Second:           {"42s", "42s ago"},
		-12 * time.Minute:           {"12m", "12m ago"},
		-190 * time.Minute:          {"3h 10m", "3h 10m ago"},
		-3 * time.Hour:              {"3h", "3h ago"},
		-52 * time.Hour:             {"2d 4h", "2d 4h ago"},
		500 * time.Millisecond:      {"0s", "in 0:01"},
		101*time.Second + 1:         {"in 1:42", "in 1:42"},
		119*time.Second + 1:         {"in 2:00", "in 2:00"},
		2 * time.Minute:             {"in 2m", "in 2m"},
		5*time.Minute - time.Second: {"in 5m", "in 5m"},
		26 * time.Hour:              {"in 1d 2h", "in 1d 2h"},
		10*day - time.Minute:        {"in 10d", "in 10d"},
		-200 * 365 * day:            {"73000d", "73000d ago"},
		math.MaxInt64:               {"in 106751d", "in 106751d"},
	} {
		if got := [2]string{text.Age(now.Add(d), now), text.Relative(now.Add(d), now)}; got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	if got := text.Age(time.Time{}, now) + text.Relative(time.Time{}, now); got != "" {
		t.Errorf("an unknown time is %q", got)
	}
}

func TestTimeSinceADeadlineCountsSecondsAtFirst(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "+0:00", 34*time.Second + 999*time.Millisecond: "+0:34", 119 * time.Second: "+1:59",
		2 * time.Minute: "+2m", 14*time.Minute + 59*time.Second: "+14m",
	} {
		if got := text.Overdue(d); got != want {
			t.Errorf("%v late is %q, want %q", d, got, want)
		}
	}
}

func TestTimesInSentences(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		999 * time.Millisecond:         "just now",
		-999 * time.Millisecond:        "just now",
		-time.Second:                   "1 second ago",
		-119 * time.Second:             "119 seconds ago",
		-179 * time.Second:             "2 minutes ago",
		5*time.Minute - time.Second:    "in 5 minutes",
		47*time.Hour + 50*time.Minute:  "in 2 days",
		-47*time.Hour - 50*time.Minute: "47 hours ago",
		48 * time.Hour:                 "in 2 days",
	} {
		if got := text.RelativeWords(now.Add(d), now); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
