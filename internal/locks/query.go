package locks

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Limits of the query box: a query is typed by a person or built into a link, never longer.
const (
	MaxQueryBytes = 512
	maxTerms      = 16
	maxRegexps    = 2
)

// Query is a parsed query, of a search box, an API or a command line: terms that a [Subject] must all match.
type Query struct {
	Text           string // as typed, as far as it is read
	Terms          []Term
	Problems       []QueryProblem
	about          About
	globs          text.Globs // words that are patterns for names, of which one must match
	dependsOnClock bool
	regexps        int
}

// Term is one condition.
type Term struct {
	Text     string // as typed, with its "-"
	key      string // of "key:value"; else empty
	not      bool
	isRegexp bool // cheaper terms are checked first
	match    matcher
}

// QueryProblem is a term that was left out or, if Nothing is set, that nothing can match, and why.
type QueryProblem struct {
	Term, Text string
	Nothing    bool
}

// ParseQuery reads a query about things of one kind. It never fails: what cannot be read is left out and listed in
// problems, so that the page still shows what the rest finds.
func ParseQuery(typed string, about About) *Query {
	q := &Query{Text: text.Cut(typed, MaxQueryBytes), about: about} // a hundred links carry it on
	if len(typed) > MaxQueryBytes {
		q.problem(text.Clip(typed, 20),
			fmt.Sprintf("the query has %d bytes, at most %d are read", len(typed), MaxQueryBytes))
	}
	for rest := q.Text; ; {
		var token string
		if token, rest = nextToken(rest); token == "" {
			return q
		}
		if len(q.Terms) == maxTerms {
			q.problem(token, fmt.Sprintf("only the first %d terms are read", maxTerms))
			return q
		}
		q.add(token)
	}
}

func (q *Query) problem(term, text string) {
	q.Problems = append(q.Problems, QueryProblem{Term: term, Text: text})
}

// Err returns the first problem of the query, for programs, which do not show Problems.
func (q *Query) Err() error {
	for _, p := range q.Problems {
		return errors.New(text.Visible(p.Term) + ": " + text.Visible(p.Text))
	}
	return nil
}

// HasKey reports whether a term has a key, such as host:node-7, or could not be read, such as one with a wrong value.
func (q *Query) HasKey() bool {
	return slices.ContainsFunc(q.Terms, func(t Term) bool { return t.key != "" }) || len(q.Problems) > 0
}

// UnknownKey returns the first term whose part before a colon could be meant as a key, such as stat:held, and that
// part; empty if there is none.
func (q *Query) UnknownKey() (term, key string) {
	for i := range q.Terms {
		t := &q.Terms[i]
		key, _, colon := strings.Cut(strings.TrimPrefix(t.Text, "-"), ":")
		if colon && t.key == "" && key != "" &&
			!strings.ContainsFunc(key, func(c rune) bool { return !unicode.IsLetter(c) }) {
			return t.Text, key
		}
	}
	return "", ""
}

// nextToken cuts the first term off: up to a blank outside of quotes.
func nextToken(s string) (token, rest string) {
	s = strings.TrimLeft(s, " \t\r\n")
	quoted := false
	for i, c := range s {
		switch {
		case c == '"':
			quoted = !quoted
		case !quoted && strings.ContainsRune(" \t\r\n", c):
			return s[:i], s[i:]
		}
	}
	return s, ""
}

func (q *Query) add(token string) {
	t := Term{Text: token}
	body, not := strings.CutPrefix(token, "-")
	if t.not = not && body != ""; !t.not {
		body = token
	}
	key, value, ok := cutKey(body)
	switch {
	case !ok:
		t.match = q.word(body, t.not)
	case !q.about.has(key):
		q.Problems = append(q.Problems, QueryProblem{Term: token, Nothing: !t.not,
			Text: fmt.Sprintf("the key %s does not apply to %s", key, q.about)})
		if t.not {
			return
		}
		t.match = func(*Subject, time.Time) bool { return false }
	default:
		var err error
		regexps := q.regexps
		if t.match, err = q.field(key, unquote(value)); err != nil {
			q.problem(token, err.Error())
			return
		}
		t.isRegexp = q.regexps > regexps
	}
	t.key = key
	q.Terms = append(q.Terms, t)
}

// cutKey takes "key:value" apart. Anything else before a colon is part of a word, as in the name db:migrate.
func cutKey(s string) (key, value string, ok bool) {
	key, value, ok = strings.Cut(s, ":")
	if !ok || !slices.Contains(queryKeys(), key) {
		return "", "", false
	}
	return key, value, true
}

// word returns the condition of a term without a key: a pattern for names, unless quoted, or a part of a text.
func (q *Query) word(typed string, not bool) matcher {
	word := strings.ToLower(unquote(typed))
	if strings.Contains(typed, `"`) || !isGlob(word) {
		return func(s *Subject, _ time.Time) bool { return s.hasWord(word) }
	}
	globs := &q.globs
	if not {
		globs = &text.Globs{}
	}
	*globs = append(*globs, word)
	return func(s *Subject, _ time.Time) bool { return globs.Match(strings.ToLower(s.searchedName())) }
}

func unquote(s string) string { return strings.ReplaceAll(s, `"`, "") }

// DependsOnClock reports whether the answer depends on the clock.
func (q *Query) DependsOnClock() bool { return q.dependsOnClock }

// Matches reports whether the subject fulfils all terms.
func (q *Query) Matches(s *Subject, now time.Time) bool {
	return q.fulfils(s, now, false) && (q.regexps == 0 || q.fulfils(s, now, true))
}

// fulfils reports whether the subject fulfils those terms that are regular expressions, or all others.
func (q *Query) fulfils(s *Subject, now time.Time, regexps bool) bool {
	for i := range q.Terms {
		if t := &q.Terms[i]; t.isRegexp == regexps && t.match(s, now) == t.not {
			return false
		}
	}
	return true
}

// With returns the text of the query with a term that replaces those with the same key: "state:alerting".
func (q *Query) With(added string) string {
	key, _, _ := cutKey(added)
	kept := q.without(func(t Term) bool { return t.key != "" && t.key == key })
	return textOf(append(kept, Term{Text: added}))
}

func (q *Query) without(these func(Term) bool) []Term {
	return slices.DeleteFunc(slices.Clone(q.Terms), these)
}

// Exactly returns the term that finds this value and no other.
func Exactly(key, value string) string { return key + ":=" + quoted(value) }

// FieldTerm returns the term that finds this value as a part, or as a glob.
func FieldTerm(key, value string) string { return key + ":" + quoted(value) }

func quoted(value string) string {
	if value = unquote(value); strings.ContainsAny(value, " \t\r\n") {
		return `"` + value + `"`
	}
	return value
}

// Dropping returns the text of the query without these terms.
func (q *Query) Dropping(terms ...string) string {
	return textOf(q.without(func(t Term) bool { return slices.Contains(terms, t.Text) }))
}

func textOf(terms []Term) string {
	texts := make([]string, len(terms))
	for i, t := range terms {
		texts[i] = t.Text
	}
	return strings.Join(texts, " ")
}

// Limits of what a search may cost. An instruction of a regular expression takes about 5 ns for each byte of a name.
const (
	maxRegexpBytes        = 128
	maxRegexpInstructions = 300 // a UUID digit by digit takes 38
	maxSearchedName       = 4 * metadata.MaxNameBytes
	maxSearch             = 2 * time.Second
	maxRegexpSearches     = 2 // searches with regular expressions at once; each takes a processor
	rowsPerContextCheck   = 256
)

// ErrTooSlow is the cause of the end of a search that takes too long. That of one whose reader left is
// [context.Canceled].
var ErrTooSlow = fmt.Errorf("the search took longer than %v", maxSearch)

// WithLimit returns the context of a search for this reader.
func WithLimit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, maxSearch, ErrTooSlow)
}

// compileRegexp reads a regular expression and refuses one that would take long for every name.
func compileRegexp(pattern string) (*regexp.Regexp, error) {
	if len(pattern) > maxRegexpBytes {
		return nil, fmt.Errorf("a regular expression may have %d bytes", maxRegexpBytes)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	if n := len(program.Inst); n > maxRegexpInstructions {
		return nil, fmt.Errorf("the regular expression is too costly: it takes %d steps for every character, at most "+
			"%d are allowed", n, maxRegexpInstructions)
	}
	return regexp.Compile(pattern)
}
