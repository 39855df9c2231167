package cli_test

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/clustermutex/unlocker/internal/cli"
)

func TestVisibleShowsEveryByte(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"plain text stays as it is":               {"billing/invoice run", "billing/invoice run"},
		"letters of all scripts stay":             {"漢字 δοκιμή", "漢字 δοκιμή"},
		"an escape sequence is spelled out":       {"\x1b[2J", `\x1b[2J`},
		"a new line is no new line":               {"a\nb\r\t", `a\nb\r\t`},
		"C1 controls are controls":                {"\u009b31m", `\u009b31m`},
		"marks of direction are spelled out":      {"\u202egnp.exe\u200f", `\u202egnp.exe\u200f`},
		"what is not seen is spelled out":         {"a\u200bb\u2060\ufeff\u3164\u2800", `a\u200bb\u2060\ufeff\u3164\u2800`},
		"a variation of the same name shows":      {"a\ufe0f", `a\ufe0f`},
		"a tag behind the last plane shows":       {"a\U000e0041", `a\U000e0041`},
		"bytes that are not UTF-8 are hex":        {"a\xffb\xc3", `a\xffb\xc3`},
		"the replacement character is one":        {"\ufffd", "\ufffd"},
		"a backslash is doubled":                  {`a\x1b`, `a\\x1b`},
		"one blank is a blank":                    {"a b", "a b"},
		"blanks do not play columns":              {" a   b ", `\x20a \x20\x20b\x20`},
		"a blank that does not break shows":       {"a\u00a0b", `a\u00a0b`},
		"a pile of marks is cut down to size":     {"e" + strings.Repeat("\u0301", 6), "e" + strings.Repeat("\u0301", 4) + `\u0301\u0301`},
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
			if got := cli.Visible(c.in); got != c.want {
				t.Errorf("%+q becomes %s, want %s", c.in, got, c.want)
			}
		})
	}
}

func FuzzVisibleCanBeReadBackAndDrivesNoTerminal(f *testing.F) {
	for _, s := range []string{"", "a", `\`, "\x1b[2J", "a  b", "\xff", "\u202e", "e\u0301\u0301\u0301\u0301\u0301", `\x41`, `"'`, "\u3164"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		shown := cli.Visible(s)
		for _, r := range shown {
			if !unicode.IsPrint(r) || unicode.In(r, unicode.Cf, unicode.Bidi_Control, unicode.Other_Default_Ignorable_Code_Point) {
				t.Errorf("%+q is shown with %U", s, r)
			}
		}
		if strings.Contains(shown, "  ") || strings.TrimSpace(shown) != shown {
			t.Errorf("%+q is shown as %q, with blanks that play columns", s, shown)
		}
		if back, err := cli.ParseVisible(shown); err != nil || back != s {
			t.Errorf("%+q is shown as %q, and read back as %+q, %v", s, shown, back, err)
		}
		for _, r := range cli.Prose(s) {
			if !unicode.IsPrint(r) {
				t.Errorf("%+q is quoted with %U", s, r)
			}
		}
		if clipped := cli.Clip(shown, 10); cli.Columns(clipped) > 10 {
			t.Errorf("%q cut to 10 columns is %q, which has %d", shown, clipped, cli.Columns(clipped))
		}
	})
}

func TestNamesThatNobodyPrintedAreRefused(t *testing.T) {
	for _, s := range []string{`a\`, `\q`, `\x4`, `\u12`, "\xff", `\'`} {
		if name, err := cli.ParseVisible(s); err == nil {
			t.Errorf("%q was read as %q", s, name)
		}
	}
}

func TestABacktraceKeepsItsLinesAndIndents(t *testing.T) {
	got := cli.Lines("main.go:12 in main.run\n\tmain.go:3 in main.main\r\n  \x1b[2J\n\n")
	want := []string{"main.go:12 in main.run", `    main.go:3 in main.main\r`, `  \x1b[2J`}
	if !slices.Equal(got, want) {
		t.Errorf("lines are %q, want %q", got, want)
	}
}

func TestTimesAreWrittenAsPeopleReadThem(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	for d, want := range map[time.Duration][2]string{
		0:                           {"0s", "0s ago"},
		-42 * time.Second:           {"42s", "42s ago"},
		-12 * time.Minute:           {"12m", "12m ago"},
		-190 * time.Minute:          {"3h 10m", "3h 10m ago"},
		-52 * time.Hour:             {"2d 4h", "2d 4h ago"},
		500 * time.Millisecond:      {"0s", "in 0:01"},
		101*time.Second + 1:         {"in 1:42", "in 1:42"},
		119*time.Second + 1:         {"in 2:00", "in 2:00"},
		2 * time.Minute:             {"in 2m", "in 2m"},
		26 * time.Hour:              {"in 1d 2h", "in 1d 2h"},
		-200 * 365 * 24 * time.Hour: {"73000d 0h", "73000d 0h ago"},
	} {
		if got := [2]string{cli.Age(now.Add(d), now), cli.Relative(now.Add(d), now)}; got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	if got := cli.Age(time.Time{}, now) + cli.Relative(time.Time{}, now); got != "--" {
		t.Errorf("an unknown time is %q", got)
	}
}

func TestPatternsMatchWholeNames(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"billing/*", "billing/a/b", true}, {"billing/*", "billing", false}, {"*", "", true}, {"?", "漢", true}, {"a.c", "abc", false},
		{"a*c", "a\nc", true}, {"(", "(", true}, {"a", "ab", false}, {"[a-z]", "b", false}, {"*\xff*", "a\xffb", false},
	} {
		if got := cli.Match(c.pattern, c.name); got != c.want {
			t.Errorf("%q matches %q: %v, want %v", c.pattern, c.name, got, c.want)
		}
	}
}
