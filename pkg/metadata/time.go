package metadata

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// secondDigits is the fixed width that makes written times sort as bytes.
const secondDigits = 10

// maxSeconds is the largest second that fits ten digits, in the year 2286.
const maxSeconds = 9_999_999_999

// ParseTime reads a time of the protocol: seconds since 1970-01-01 UTC as ten integer digits and at most nine fraction
// digits, such as 1553682600.25. The instant is in UTC.
func ParseTime(s string) (time.Time, error) {
	whole := s
	fraction := ""
	if len(s) > secondDigits && s[secondDigits] == '.' {
		whole = s[:secondDigits]
		fraction = s[secondDigits+1:]
		if fraction == "" || len(fraction) > 9 || !allDigits(fraction) {
			return time.Time{}, fmt.Errorf("%.40q is not a time: expected one to nine digits after the point", s)
		}
	}
	if len(whole) != secondDigits || !allDigits(whole) {
		return time.Time{},
			fmt.Errorf("%.40q is not a time: expected seconds since 1970 with ten digits, like 1553682600.25", s)
	}
	seconds, _ := strconv.ParseInt(whole, 10, 64)
	nanos, _ := strconv.ParseInt((fraction + "000000000")[:9], 10, 64)
	return time.Unix(seconds, nanos).UTC(), nil
}

// FormatTime returns t in the protocol's format. Instants outside 1970 to 2286 become the nearest end of that range.
func FormatTime(t time.Time) string {
	seconds := t.Unix()
	nanos := t.Nanosecond()
	switch {
	case seconds < 0:
		seconds = 0
		nanos = 0
	case seconds > maxSeconds:
		seconds = maxSeconds
		nanos = 999_999_999
	}
	whole := fmt.Sprintf("%0*d", secondDigits, seconds)
	if nanos == 0 {
		return whole
	}
	return strings.TrimRight(fmt.Sprintf("%s.%09d", whole, nanos), "0")
}

// Time is an instant inside a JSON document of the protocol. It is written as a string in the protocol's time format
// and read from a string or a number. The zero Time is written as null.
type Time struct{ time.Time }

// MarshalJSON writes the protocol's time format as a string.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return []byte(`"` + FormatTime(t.Time) + `"`), nil
}

// UnmarshalJSON reads the protocol's time format from a string or a number.
func (t *Time) UnmarshalJSON(b []byte) error {
	s := string(b)
	if s == "null" {
		*t = Time{}
		return nil
	}
	if unquoted, err := strconv.Unquote(s); err == nil {
		s = unquoted
	}
	parsed, err := ParseTime(s)
	if err != nil {
		return err
	}
	t.Time = parsed
	return nil
}

func allDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }
