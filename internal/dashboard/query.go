package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of the query box: a query is typed by a person or built into a link, never longer.
const (
	maxQueryBytes = 512
	maxTerms      = 16
	maxRegexps    = 2
)

// query is the parsed text of the query box: terms that a lock must all match.
type query struct {
	text     string // as typed, as far as it is read
	terms    []term
	problems []queryProblem
	timed    bool // the answer depends on the clock
	regexps  int
}

// term is one condition.
type term struct {
	text  string // as typed, with its "-"
	not   bool
	match func(r *row, now time.Time) bool
}

// queryProblem is a term that was left out, and why.
type queryProblem struct{ Term, Text string }

// parseQuery reads a query. It never fails: what can not be read is left out and listed in problems, so that the page
// still shows what the rest finds.
func parseQuery(text string) *query {
	q := &query{}
	if len(text) > maxQueryBytes {
		q.problem(text[:20]+"…", fmt.Sprintf("the query has %d bytes, at most %d are read", len(text), maxQueryBytes))
		for text = text[:maxQueryBytes]; !utf8.RuneStart(text[len(text)-1]); {
			text = text[:len(text)-1]
		}
	}
	q.text = text // a hundred links carry it on
	for rest := text; ; {
		var token string
		if token, rest = nextToken(rest); token == "" {
			return q
		}
		if len(q.terms) == maxTerms {
			q.problem(token, fmt.Sprintf("only the first %d terms are read", maxTerms))
			return q
		}
		q.add(token)
	}
}

func (q *query) problem(term, text string) { q.problems = append(q.problems, queryProblem{term, text}) }

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

func (q *query) add(token string) {
	t := term{text: token}
	body, not := strings.CutPrefix(token, "-")
	if t.not = not && body != ""; !t.not {
		body = token
	}
	key, value, keyed := cutKey(body)
	var err error
	if keyed {
		t.match, err = q.field(key, unquote(value))
	} else {
		word := strings.ToLower(unquote(body))
		t.match = func(r *row, _ time.Time) bool { return strings.Contains(r.text, word) }
	}
	if err != nil {
		q.problem(token, err.Error())
		return
	}
	q.terms = append(q.terms, t)
}

// cutKey takes "key:value" apart; a quoted term is never one.
func cutKey(s string) (key, value string, ok bool) {
	key, value, ok = strings.Cut(s, ":")
	for _, c := range key {
		if c < 'a' || c > 'z' {
			return "", "", false
		}
	}
	return key, value, ok && key != ""
}

func unquote(s string) string { return strings.ReplaceAll(s, `"`, "") }

// matches tells whether the lock fulfils all terms.
func (q *query) matches(r *row, now time.Time) bool {
	for i := range q.terms {
		if q.terms[i].match(r, now) == q.terms[i].not {
			return false
		}
	}
	return true
}

// without is the text of the query without the n-th term, for the link that removes it.
func (q *query) without(n int) string {
	kept := make([]string, 0, len(q.terms))
	for i, t := range q.terms {
		if i != n {
			kept = append(kept, t.text)
		}
	}
	return strings.Join(kept, " ")
}

// with is the text of the query with a term that replaces those with the same key: "state:alerting".
func (q *query) with(added string) string {
	key, _, _ := cutKey(added)
	var kept []string
	for _, t := range q.terms {
		if k, _, ok := cutKey(strings.TrimPrefix(t.text, "-")); !ok || k != key {
			kept = append(kept, t.text)
		}
	}
	return strings.Join(append(kept, added), " ")
}

// exactly is the term that finds this value and no other, and fieldTerm one that is looked for.
func exactly(key, value string) string   { return key + ":=" + quoted(value) }
func fieldTerm(key, value string) string { return key + ":" + quoted(value) }

func quoted(value string) string {
	if value = unquote(value); strings.ContainsAny(value, " \t\r\n") {
		return `"` + value + `"`
	}
	return value
}

// dropping is the text of the query without this term.
func (q *query) dropping(texts ...string) string {
	var kept []string
	for _, t := range q.terms {
		if !slices.Contains(texts, t.text) {
			kept = append(kept, t.text)
		}
	}
	return strings.Join(kept, " ")
}
