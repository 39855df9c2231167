package text

import "unicode/utf8"

// Clip shortens s to at most most bytes plus an ellipsis. It never cuts a character in two.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return Cut(s, most) + "…"
}

// Cut shortens s to at most most bytes and never cuts a character in two.
func Cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for n := most; n > 0 && n > most-utf8.UTFMax; n-- {
		if utf8.RuneStart(s[n]) {
			return s[:n]
		}
	}
	return s[:most] // not UTF-8 there, so there is no character to keep whole
}
