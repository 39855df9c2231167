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
)

// matcher reports whether a subject fulfils a term.
type matcher = func(s *Subject, now time.Time) bool

// byKey is the one key with a hyphen.
const byKey = "acknowledged-by"

func queryKeys() []string {
	return strings.Fields("name owner host pid hold purpose label state taken held alert alerted unlock expired " +
		"wait waiters acknowledged " + byKey + " ended")
}

// field returns the condition of "key:value".
func (q *Query) field(key, value string) (matcher, error) {
	if strings.TrimPrefix(value, "=") == "" {
		return nil, fmt.Errorf("the key %s needs a value", key)
	}
	switch key {
	case "owner":
		return anyOf(value, func(s *Subject) string { return s.Owner }), nil
	case "purpose":
		return anyOf(value, func(s *Subject) string { return s.Purpose }), nil
	case byKey:
		return anyOf(value, (*Subject).acknowledgedBy), nil
	case "name":
		return q.nameTerm(value)
	case "host": // with its process, or without
		return anyOf(value, func(s *Subject) string { return s.Host },
			func(s *Subject) string { return HostPID(s.Host, s.PID) }), nil
	case "hold":
		value = strings.ToLower(value)
		return func(s *Subject, _ time.Time) bool { return strings.HasPrefix(s.Hold, value) }, nil
	case "pid":
		return pidTerm(value)
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
	case "taken", "alerted":
		return instantTerm(key, value)
	}
	q.dependsOnClock = true
	return durationTerm(key, value)
}

func pidTerm(value string) (matcher, error) {
	pid, err := strconv.ParseInt(value, 10, 64)
	if err != nil || pid <= 0 {
		return nil, errors.New("needs a process id, like pid:17")
	}
	return func(s *Subject, _ time.Time) bool { return s.PID == pid }, nil
}

// anyOf matches when one of the texts, whatever its case, is the value after "=", or fits one of several values between
// commas: a pattern as a whole, another value as a part. A query has no way to say a quote, so quotes in a text do not
// count.
func anyOf(value string, texts ...func(*Subject) string) matcher {
	value, exact := strings.CutPrefix(strings.ToLower(value), "=")
	wanted := strings.Split(value, ",")
	fits := func(have, want string) bool {
		if isGlob(want) {
			return text.Globs{want}.Match(have)
		}
		return want != "" && strings.Contains(have, want)
	}
	return func(s *Subject, _ time.Time) bool {
		return slices.ContainsFunc(texts, func(text func(*Subject) string) bool {
			have := unquote(strings.ToLower(text(s)))
			if have == "" || exact {
				return have != "" && have == value
			}
			return slices.ContainsFunc(wanted, func(want string) bool { return fits(have, want) })
		})
	}
}

func isGlob(word string) bool { return strings.ContainsAny(word, "*?") }

// nameTerm matches names, also by /regular expression/.
func (q *Query) nameTerm(value string) (matcher, error) {
	if len(value) <= 2 || value[0] != '/' || value[len(value)-1] != '/' {
		return anyOf(value, (*Subject).searchedName), nil
	}
	if q.regexps++; q.regexps > maxRegexps {
		return nil, fmt.Errorf("only %d regular expressions are allowed", maxRegexps)
	}
	compiled, err := compileRegexp(value[1 : len(value)-1])
	if err != nil {
		return nil, err
	}
	return func(s *Subject, _ time.Time) bool { return compiled.MatchString(s.searchedName()) }, nil
}

func stateTerm(value string) (matcher, error) {
	wanted, err := splitWords(value, "state", stateWords())
	return func(s *Subject, _ time.Time) bool {
		return slices.ContainsFunc(s.States[:],
			func(is metadata.State) bool { return slices.Contains(wanted, string(is)) })
	}, err
}

func stateWords() (words []string) {
	for _, s := range metadata.States() {
		words = append(words, string(s.State))
	}
	return append(words, string(LeasedState))
}

func endedTerm(value string) (matcher, error) {
	wanted, err := splitWords(value, "ending", endedWords())
	return func(s *Subject, _ time.Time) bool {
		return slices.Contains(wanted, s.Ended) || s.HadAlerted && slices.Contains(wanted, Alerted)
	}, err
}

// splitWords splits a comma-separated list, in which only known words may be.
func splitWords(list, kind string, known []string) ([]string, error) {
	words := strings.Split(list, ",")
	for _, word := range words {
		if !slices.Contains(known, word) {
			return nil, errors.New("no such " + kind + ", only " + strings.Join(known, ", "))
		}
	}
	return words, nil
}

// acknowledgedTerm matches what somebody has acknowledged, or nobody.
func acknowledgedTerm(value string) (matcher, error) {
	if value != "yes" && value != "no" {
		return nil, errors.New("must be yes or no")
	}
	return func(s *Subject, _ time.Time) bool { return (s.Acknowledged != nil) == (value == "yes") }, nil
}

// labelTerm matches attributes: "team=core", or "team" for any value.
func labelTerm(value string) (matcher, error) {
	name, want, valued := strings.Cut(value, "=")
	return func(s *Subject, _ time.Time) bool {
		have, ok := s.Labels[name]
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
	if !ok || err != nil || n < 0 {
		return nil, errors.New("needs > or < and a number, like waiters:>0")
	}
	return func(s *Subject, _ time.Time) bool { return more && s.Waiters > n || !more && s.Waiters < n }, nil
}

func durationTerm(key, value string) (matcher, error) {
	more, text, ok := comparison(value)
	want, err := ParseDuration(text)
	if !ok || err != nil {
		return nil, fmt.Errorf("needs > or < and a duration, like %s:>1h30m", key)
	}
	return func(s *Subject, now time.Time) bool {
		have, known := s.duration(key, now)
		return known && (more && have > want || !more && have < want)
	}, nil
}

func instantTerm(key, value string) (matcher, error) {
	more, text, ok := comparison(value)
	want, err := time.Parse(time.RFC3339, text)
	if !ok || err != nil {
		return nil, fmt.Errorf("needs > or < and a time, like %s:>2026-11-21T03:00:00Z", key)
	}
	return func(s *Subject, _ time.Time) bool {
		have := s.Taken
		if key == "alerted" {
			have = s.Alerted
		}
		return !have.IsZero() && (more && have.After(want) || !more && have.Before(want))
	}, nil
}

// ParseDuration reads 90s, 5m, 1h30m and 2d. It refuses what is negative.
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
	if err == nil && d < 0 {
		err = errors.New("negative")
	}
	return time.Duration(days)*24*time.Hour + d, err
}

// EndedWord returns how a hold ended, in a word.
func EndedWord(ended string) string {
	words, _ := metadata.EndingWordsFor(ended)
	return words.Word
}

// Alerted is the word that finds the holds for which people were alerted, however they ended.
const Alerted = "alerted"

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

// TermHelp describes a form of a term, and what it finds.
type TermHelp struct{ Term, Finds string }

// QueryRules is how terms combine, for the help.
const QueryRules = "All terms must match; of several patterns (a* b*), one is enough. " +
	"A - before a term excludes what it finds."

// TermsHelp returns the query language, for the help of pages and commands.
func TermsHelp() []TermHelp {
	return []TermHelp{
		{`invoice`, "the word in name, owner, host or purpose, in any case"},
		{`"two words"`, "the phrase; in quotes, * ? and : have no special meaning"},
		{`billing/*`, "whole names: * is any text, slashes included, ? one character"},
		{`name:billing/nightly`, "a part of the name; with * or ?, the whole name"},
		{`name:=billing/nightly`, "exactly this name"},
		{`name:/^billing\/[0-9]+$/`, "names by regular expression"},
		{`owner:billing,catalog`, "one or the other; owner: host: purpose: acknowledged-by: are like name:"},
		{`host:node-7`, "a part of the host; host:node-7:17 has the process, too"},
		{`pid:17`, "the process id"},
		{`purpose:invoices`, "a part of the purpose"},
		{`hold:3f2a`, "the hold whose id begins with this"},
		{`label:team=core`, "an attribute of the record; label:team for any value"},
		{`state:alerting,expired`, "states; expiring too"},
		{`held:>1h`, "held for longer; < for less; durations like 90s 5m 1h30m 2d"},
		{`alert:<5m`, "alerts within that time, or already has"},
		{`unlock:<2m`, "is auto-unlocked within that time, or should have been"},
		{`expired:>1m`, "expired for longer than that"},
		{`waiters:>0`, "more waiters than that; < for fewer"},
		{`wait:>30s`, "the longest waiter has waited longer"},
		{`taken:>2026-11-21T03:00:00Z`, "taken after that time, < before it"},
		{`alerted:>2026-11-21T03:00:00Z`, "alerting, abandoned or expired since then"},
		{`acknowledged:no`, "not acknowledged"},
		{`acknowledged-by:ann`, "acknowledged by this person"},
		{`ended:auto-unlocked`, "past holds; or released, yielded, abandoned, force-unlocked"},
		{`ended:alerted`, "past holds that had alerted before"},
	}
}
