package locks

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// matcher reports whether a lock fulfils a term.
type matcher = func(r *Row, now time.Time) bool

// queryKeys lists the keys, for messages.
const queryKeys = "name owner host pid hold purpose state ended held alert unlock expired wait waiters label " +
	"taken alerted acknowledged acknowledged-by"

// field is the condition of "key:value".
func (q *Query) field(key, value string) (matcher, error) {
	if value == "" {
		return nil, fmt.Errorf("the key %s wants a value", key)
	}
	if text := searched(key); text != nil {
		return anyOf(value, text), nil
	}
	switch key {
	case "name":
		return q.nameTerm(value)
	case "host":
		return hostTerm(value), nil
	case "hold":
		value = strings.ToLower(value)
		return func(r *Row, _ time.Time) bool { return strings.HasPrefix(r.UUID, value) }, nil
	case "pid":
		pid, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return nil, errors.New("pid: wants a number")
		}
		return func(r *Row, _ time.Time) bool { return r.PID == pid }, nil
	case "state":
		return stateTerm(value)
	case "ended":
		return endedTerm(value)
	case "label":
		return labelTerm(value)
	case "waiters":
		return countTerm(value)
	case "acknowledged":
		return acknowledgedTerm(value)
	case "taken", "alerted", "held", "alert", "unlock", "expired", "wait":
		return q.timeTerm(key, value)
	}
	return nil, fmt.Errorf("no such key; there are: %s. Put the term in quotes to search for the text", queryKeys)
}

// searched is the text of a lock that the key is about, for keys that are about one text; else nil.
func searched(key string) func(*Row) string {
	switch key {
	case "owner":
		return func(r *Row) string { return r.Owner }
	case "purpose":
		return func(r *Row) string { return r.Purpose }
	case byKey:
		return func(r *Row) string {
			if r.Looked == nil {
				return ""
			}
			return r.Looked.By
		}
	}
	return nil
}

// anyOf matches when one of the comma-separated values is part of one of the texts, or when a text is the value after
// "=", whatever the case. A query has no way to say a quote, so those in an exact text do not count.
func anyOf(value string, texts ...func(*Row) string) matcher {
	value, exact := strings.CutPrefix(strings.ToLower(value), "=")
	wanted := strings.Split(value, ",")
	fits := func(have string) bool {
		if exact {
			return unquote(have) == value
		}
		return slices.ContainsFunc(wanted, func(w string) bool { return w != "" && strings.Contains(have, w) })
	}
	return func(r *Row, _ time.Time) bool {
		return slices.ContainsFunc(texts, func(text func(*Row) string) bool { return fits(strings.ToLower(text(r))) })
	}
}

// hostTerm matches hosts with their process, or without it if the term is the whole host.
func hostTerm(value string) matcher {
	full := func(r *Row) string { return HostPID(r.Hostname, r.PID) }
	if !strings.HasPrefix(value, "=") {
		return anyOf(value, full)
	}
	return anyOf(value, full, func(r *Row) string { return r.Hostname })
}

// nameTerm matches names by part, by glob with *, or by /regular expression/.
func (q *Query) nameTerm(value string) (matcher, error) {
	if len(value) > 2 && value[0] == '/' && value[len(value)-1] == '/' {
		if q.regexps++; q.regexps > maxRegexps {
			return nil, fmt.Errorf("only %d regular expressions are allowed", maxRegexps)
		}
		return regexpTerm(value[1 : len(value)-1])
	}
	if !strings.Contains(value, "*") || value[0] == '=' {
		return anyOf(value, func(r *Row) string { return r.Name }), nil
	}
	globs := strings.Split(strings.ToLower(value), ",")
	return func(r *Row, _ time.Time) bool {
		name := strings.ToLower(r.Name)
		return slices.ContainsFunc(globs, func(glob string) bool { return text.Matches(glob, name) })
	}, nil
}

func regexpTerm(pattern string) (matcher, error) {
	compiled, err := compileRegexp(pattern)
	if err != nil {
		return nil, err
	}
	return func(r *Row, _ time.Time) bool { return compiled.MatchString(r.Name[:min(len(r.Name), maxRegexpName)]) }, nil
}

// stateTerm matches states, and expiring.
func stateTerm(value string) (matcher, error) {
	wanted := map[string]bool{}
	for word := range strings.SplitSeq(value, ",") {
		if !slices.Contains(stateWords(), word) {
			return nil, errors.New("no such state: " + strings.Join(stateWords(), " "))
		}
		wanted[word] = true
	}
	return func(r *Row, _ time.Time) bool {
		return wanted[string(r.verdict.State)] || wanted[string(r.Display)]
	}, nil
}

func stateWords() (words []string) {
	for _, s := range metadata.States() {
		words = append(words, string(s.State))
	}
	return words
}

// endedTerm matches how holds ended. Locks that are held have not.
func endedTerm(value string) (matcher, error) {
	wanted := strings.Split(value, ",")
	for _, word := range wanted {
		if !slices.Contains(endedWords(), word) {
			return nil, errors.New("no such end: " + strings.Join(endedWords(), " "))
		}
	}
	return func(r *Row, _ time.Time) bool {
		return r.Ending != nil && (slices.Contains(wanted, EndedWord(r.Ending.Cause)) ||
			slices.Contains(wanted, Alerted) && HadAlerted(r.Ending))
	}, nil
}

// byKey is the one key with a hyphen.
const byKey = "acknowledged-by"

// acknowledgedTerm matches locks that somebody looks at, or nobody.
func acknowledgedTerm(value string) (matcher, error) {
	if value != "yes" && value != "no" {
		return nil, errors.New("wants yes or no")
	}
	return func(r *Row, _ time.Time) bool { return (r.Looked != nil) == (value == "yes") }, nil
}

// labelTerm matches attributes: "team=core", or "team" for any value.
func labelTerm(value string) (matcher, error) {
	name, want, valued := strings.Cut(value, "=")
	return func(r *Row, _ time.Time) bool {
		have, ok := r.Attributes[name]
		return ok && (!valued || fmt.Sprint(have) == want)
	}, nil
}

// comparison reads ">1h" into its operator and the rest.
func comparison(s string) (more bool, rest string, ok bool) {
	more = strings.HasPrefix(s, ">")
	return more, strings.TrimPrefix(strings.TrimLeft(s, "<>"), "="), more || strings.HasPrefix(s, "<")
}

func countTerm(value string) (matcher, error) {
	more, number, ok := comparison(value)
	n, err := strconv.Atoi(number)
	if !ok || err != nil {
		return nil, errors.New("wants a comparison with a number, like waiters:>0")
	}
	return func(r *Row, _ time.Time) bool { return more && r.Waiters > n || !more && r.Waiters < n }, nil
}

func durationTerm(key, value string) (matcher, error) {
	more, text, ok := comparison(value)
	want, err := ParseDuration(text)
	if !ok || err != nil {
		return nil, fmt.Errorf("wants a comparison with a length of time, like %s:>1h30m", key)
	}
	return func(r *Row, now time.Time) bool {
		have, known := r.length(key, now)
		return known && (more && have > want || !more && have < want)
	}, nil
}

// timeTerm compares an instant, or a length of time that goes on.
func (q *Query) timeTerm(key, value string) (matcher, error) {
	if key == "taken" || key == "alerted" {
		return instantTerm(key, value)
	}
	q.timed = true
	return durationTerm(key, value)
}

func instantTerm(key, value string) (matcher, error) {
	more, text, ok := comparison(value)
	want, err := time.Parse(time.RFC3339, text)
	if !ok || err != nil {
		return nil, fmt.Errorf("wants a comparison with a time, like %s:>2026-11-21T03:00:00Z", key)
	}
	return func(r *Row, _ time.Time) bool {
		have := r.LockedAt
		if key == "alerted" {
			have = r.TroubledAt()
		}
		return !have.IsZero() && (more && have.After(want) || !more && have.Before(want))
	}, nil
}

// length is the length of time that the key compares.
func (r *Row) length(key string, now time.Time) (d time.Duration, known bool) {
	v := r.Verdict()
	switch key {
	case "held":
		return now.Sub(r.LockedAt), !r.LockedAt.IsZero()
	case "alert":
		return v.AlertAt.Sub(now), !v.AlertAt.IsZero()
	case "unlock":
		return v.AutoUnlockAt.Sub(now), !v.AutoUnlockAt.IsZero()
	case "expired":
		return now.Sub(v.AutoUnlockAt), v.State == staleness.Expired
	default: // wait
		return now.Sub(r.Longest), !r.Longest.IsZero()
	}
}

// ParseDuration reads 90s, 5m, 1h30m and 2d.
func ParseDuration(s string) (time.Duration, error) {
	days := 0
	if whole, rest, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.Atoi(whole)
		if err != nil || n < 0 || n > 36500 {
			return 0, errors.New("bad number of days")
		}
		if days, s = n, rest; s == "" {
			s = "0s"
		}
	}
	d, err := time.ParseDuration(s)
	return time.Duration(days)*24*time.Hour + d, err
}

// EndedWord is how a hold ended, in a word.
func EndedWord(ended string) string {
	words, _ := metadata.EndingWordsFor(ended)
	return words.Word
}

// EndedTerm is the term that finds the holds which ended so.
func EndedTerm(word string) string { return "ended:" + word }

// Alerted is the word that finds the holds for which people were alerted, however they ended.
const Alerted = "alerted"

// endedWords are the words that say which holds are meant.
func endedWords() (words []string) {
	for _, e := range metadata.Endings() {
		words = append(words, e.Word)
	}
	return append(words, Alerted)
}

// HadAlerted reports whether people were alerted before the hold ended.
func HadAlerted(e *metadata.Ending) bool {
	return !e.AlertAt.IsZero() && e.AlertAt.Before(e.EndedAt.Time)
}
