package pages

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
)

// What changed since somebody last looked at a list is told from a cookie, which the browser keeps: for each of the
// last searches, when it was last shown. A dashboard remembers nothing of its viewers.

const (
	maxVisits = 16                  // searches that a cookie knows
	maxAway   = 30 * 24 * time.Hour // after which one is forgotten
	// visitEnds is how long a list is not shown before looking at it again is a new visit. A list on a screen is asked
	// for once a minute at least, unless it is paused.
	visitEnds = 5 * time.Minute
	// lookEvery is how old the last look of a cookie gets. Not every answer has to carry one.
	lookEvery = time.Minute
)

// visit is what a browser remembers of a search.
type visit struct {
	search string    // its fingerprint
	since  time.Time // the last look of the visit before this one; zero: there is none, or all was seen since
	last   time.Time // of this visit
}

// visits are those of a browser, the latest first.
type visits []visit

// cookieName is that of the dashboard at this origin. Cookies do not tell ports apart.
func cookieName(origin string) string { return "mutexdash_looked_" + fingerprint(origin) }

func fingerprint(s string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s))
	return strconv.FormatUint(uint64(h.Sum32()), 36)
}

// parseVisits reads the value of a cookie. What cannot be read, is of the future or too old is left out.
func parseVisits(value string, now time.Time) (all visits) {
	for text := range strings.SplitSeq(value, "~") {
		parts := strings.Split(text, ".")
		if len(parts) != 3 || len(all) == maxVisits {
			continue
		}
		l := visit{search: parts[0]}
		var ok [2]bool
		l.since, ok[0] = parseInstant(parts[1])
		l.last, ok[1] = parseInstant(parts[2])
		if ok[0] && ok[1] && !l.last.After(now) && !l.since.After(l.last) && now.Sub(l.last) < maxAway {
			all = append(all, l)
		}
	}
	return all
}

// parseInstant reads seconds since 1970 in base 36; 0 is the zero time.
func parseInstant(s string) (time.Time, bool) {
	seconds, err := strconv.ParseInt(s, 36, 48)
	if err != nil || seconds < 0 {
		return time.Time{}, false
	}
	if seconds == 0 {
		return time.Time{}, true
	}
	return time.Unix(seconds, 0), true
}

func (all visits) String() string {
	texts := make([]string, len(all))
	for i, l := range all {
		since := int64(0)
		if !l.since.IsZero() {
			since = l.since.Unix()
		}
		texts[i] = l.search + "." + strconv.FormatInt(since, 36) + "." + strconv.FormatInt(l.last.Unix(), 36)
	}
	return strings.Join(texts, "~")
}

// at returns the visits after a look at a search, whose locks were as of then, and whether the browser has to be told.
func (all visits) at(search string, asOf time.Time) (after visits, mine visit, told bool) {
	mine = visit{search: search}
	i := slices.IndexFunc(all, func(l visit) bool { return l.search == search })
	switch {
	case i < 0:
	case asOf.Sub(all[i].last) > visitEnds:
		mine.since = all[i].last
	case asOf.Sub(all[i].last) < lookEvery:
		return all, all[i], false
	default:
		mine.since = all[i].since
	}
	mine.last = asOf
	return all.with(mine), mine, true
}

// with puts a visit in front, in place of the one at the same search.
func (all visits) with(l visit) visits {
	others := slices.DeleteFunc(slices.Clone(all), func(o visit) bool { return o.search == l.search })
	return append(visits{l}, others[:min(len(others), maxVisits-1)]...)
}

// looked is when the caller of a list last looked at its search, and the cookie that notes that this is a look at it;
// an empty cookie is not set.
func (p *Pages) looked(r *site.Request, q *locks.Query) (since time.Time, cookie string) {
	name := cookieName(r.Caller.Origin)
	asOf := r.Viewpoint().AsOf.Truncate(time.Second)
	var known visits
	if c, err := r.Cookie(name); err == nil {
		known = parseVisits(c.Value, r.Now)
	}
	search := fingerprint(q.Text)
	if asksSeen(r) {
		known = known.with(visit{search: search, last: asOf})
		return time.Time{}, p.visitCookie(r, name, known)
	}
	known, mine, told := known.at(search, asOf)
	if told {
		cookie = p.visitCookie(r, name, known)
	}
	return mine.since, cookie
}

// asksSeen reports whether the caller has seen all that changed.
func asksSeen(r *site.Request) bool { return r.URL.Query().Get("seen") != "" }

func (p *Pages) visitCookie(r *site.Request, name string, all visits) string {
	c := http.Cookie{Name: name, Value: all.String()} //nolint:gosec // many a dashboard is reached without TLS
	c.Path = p.site.URLs.Prefix
	c.MaxAge = int(maxAway / time.Second)
	c.HttpOnly = true
	c.SameSite = http.SameSiteLaxMode
	c.Secure = strings.HasPrefix(r.Caller.Origin, "https://")
	return c.String()
}

// changed says what of a list has changed since: how many of its locks are new, newly need a person, or have ended,
// with links to them. Nil where there is nothing to compare with.
func (p *Pages) changed(r *site.Request, l ListRequest, found *locks.Result, since time.Time) phrase.Sentence {
	if since.IsZero() {
		return nil
	}
	alerting, taken := 0, 0
	for _, row := range found.Rows {
		if row.LockedAt.After(since) {
			taken++
		}
		if row.TroubledAt().After(since) {
			alerting++
		}
	}
	ended, all := p.ended(r, l.Query, since)
	at := r.Viewpoint()
	said := phrase.Say("Since you last looked, ").Time(at.Since(since)).Say(": ")
	first := true
	add := func(n int, least bool, words, url string) {
		if n == 0 && !least {
			return
		}
		said = said.When(!first, ", ")
		if first = false; n == 0 {
			said = said.Link("not known how many "+words, url)
			return
		}
		said = said.When(least, "at least ").Link(phrase.Thousands(n)+" "+words, url)
	}
	searched := func(key string) string {
		return l.link(p.site.URLs, func(l *ListRequest) {
			l.Query.Text = l.Query.With(key + ":>" + since.UTC().Format(time.RFC3339))
		})
	}
	add(alerting, false, "newly alerting", searched("alerted"))
	add(taken, false, "new", searched("taken"))
	add(ended, !all, "ended", p.site.URLs.To("history", "q", l.Query.Text, "from", since.UTC().Format(time.RFC3339)))
	return said.When(first, "nothing new, nothing ended").Say(".")
}

// maxEndedMatched is how many ended holds a search goes through for a list that only counts them.
const maxEndedMatched = 2000

// ended counts the holds of a search that ended since. all is false where there may be more: the dashboard has not
// watched all the time, or does not remember so many.
func (p *Pages) ended(r *site.Request, q *locks.Query, since time.Time) (n int, all bool) {
	all = true
	for _, part := range r.Each() {
		some, complete := part.Site.History.EndedSince(q, since, r.Now, maxEndedMatched)
		n += some
		all = all && complete
	}
	return n, all
}

// endedTag changes with every hold that ends.
func endedTag(r *site.Request) (tag uint64) {
	for _, part := range r.Each() {
		tag += part.Site.History.Count()
	}
	return tag
}

// seenURL is the list after everything that changed was seen.
func (l ListRequest) seenURL(u site.URLs) string { return l.link(u, nil, "seen", "yes") }

// sinceTag is the part of a list's version that depends on when its reader last looked.
func sinceTag(r *site.Request, since time.Time) string {
	if since.IsZero() {
		return ""
	}
	return fmt.Sprint(since.Unix(), endedTag(r))
}
