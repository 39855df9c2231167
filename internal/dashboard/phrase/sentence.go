package phrase

import (
	"strconv"
	"strings"

	"github.com/clustermutex/unlocker/internal/text"
)

// Part is a piece of a sentence: plain words, a moment, or the name of a lock or another text from outside.
type Part struct {
	Text  string
	Time  *Moment
	Value string // from outside
	URL   string // of Value
}

// Sentence is what a page says, in pieces.
type Sentence []Part

func Say(text string) Sentence                  { return Sentence{{Text: text}} }
func (s Sentence) Say(text string) Sentence     { return append(s, Part{Text: text}) }
func (s Sentence) Value(v string) Sentence      { return append(s, Part{Value: v}) }
func (s Sentence) Sentence(o Sentence) Sentence { return append(s, o...) }
func (s Sentence) Time(m *Moment) Sentence      { return append(s, Part{Time: m}) }
func (s Sentence) Link(v, url string) Sentence  { return append(s, Part{Value: v, URL: url}) }
func (s Sentence) When(ok bool, t string) Sentence {
	if ok {
		return s.Say(t)
	}
	return s
}

// String is the sentence for programs and ears.
func (s Sentence) String() string {
	said := ""
	for _, p := range s {
		switch {
		case p.Time != nil:
			said += p.Time.Text
		case p.Value != "":
			said += text.Visible(p.Value)
		default:
			said += p.Text
		}
	}
	return said
}

// Plural is "1 lock" or "2 locks".
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return text.Thousands(n) + " " + many
}

// Known is a number in digits; empty for 0, which stands for "not known".
func Known(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// Capital is a text whose first letter is a capital.
func Capital[S ~string](s S) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(string(s[:1])) + string(s[1:])
}
