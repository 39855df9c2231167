package app

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// URLs builds every link of the dashboard, so that all of them carry the prefix under which browsers reach it.
type URLs struct {
	Prefix string // begins and ends with "/"
	Route  string // the same of the paths that arrive: a proxy in front may change it
	Origin string // scheme and host; empty when the external URL does not name them
	Assets string // fingerprint of the embedded assets
}

func (u URLs) self(r *Request) string {
	return u.Prefix + strings.TrimPrefix(r.URL.RequestURI(), u.Route)
}

// To returns the link to a page by its path below the prefix, with parameters in pairs of name and value; pairs with an
// empty value are left out.
func (u URLs) To(path string, pairs ...string) string {
	var b strings.Builder
	b.WriteString(u.Prefix + path)
	separator := byte('?')
	for pair := range slices.Chunk(Flags(pairs...), 2) {
		b.WriteByte(separator)
		b.WriteString(pair[0] + "=" + queryEscape(pair[1]))
		separator = '&'
	}
	return b.String()
}

// queryEscape leaves the characters readable that names are full of and that mean nothing in a query.
func queryEscape(s string) string {
	s = url.QueryEscape(s)
	for _, plain := range []string{"/", ":", ",", "="} {
		s = strings.ReplaceAll(s, url.QueryEscape(plain), plain)
	}
	return s
}

// maxNameInURL is the length of a name that, escaped, still fits a request. Names are at most [metadata.MaxNameBytes]
// long; a key that somebody wrote by hand can be longer.
const maxNameInURL = 8 << 10

// Lock returns the link to the page of a lock, or of one hold of it; empty for a name that no request can carry.
func (u URLs) Lock(name, hold string) string {
	if len(name)+len(hold) > maxNameInURL {
		return ""
	}
	return u.named("lock", name, "hold", hold)
}

// Action returns the link to the form of an operator's action on a hold: unlock, ask or extend.
func (u URLs) Action(form, name, hold string) string { return u.named(form, name, "hold", hold) }

// LockAPI returns the link to a lock as JSON.
func (u URLs) LockAPI(name string) string {
	return u.named("api/v1/lock", name, "include", "backtrace,fields")
}

func (u URLs) named(path, name string, pairs ...string) string {
	key, value := text.NameParameter(name)
	return u.To(path, append([]string{key, value}, pairs...)...)
}

// Asset returns the link to an embedded file. It changes with the content of the files, so that browsers may keep them
// for ever.
func (u URLs) Asset(name string) string { return u.Prefix + "assets/" + u.Assets + "/" + name }

// Icon returns the link to the icon of a tab.
func (u URLs) Icon(i metadata.State) string { return u.To("icon.svg", "state", string(i)) }

// OriginFor returns the scheme and host for absolute links, which work from a command line on another machine.
func (u URLs) OriginFor(r *http.Request) string {
	if u.Origin != "" {
		return u.Origin
	}
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

func NameOf(r *Request) (string, error) {
	values := r.URL.Query()
	if name := values.Get("name"); name != "" {
		return name, nil
	}
	encoded := values.Get("name_b64")
	if encoded == "" {
		return "", &HTTPError{Status: http.StatusBadRequest, Code: "bad_query", Title: "No lock named",
			Detail: "The address must say which lock: ?name=NAME."}
	}
	name, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(encoded, "="))
	if err != nil {
		return "", &HTTPError{Status: http.StatusBadRequest, Code: "bad_query", Title: "Unreadable name",
			Detail: "name_b64 is not base64url."}
	}
	return string(name), nil
}
