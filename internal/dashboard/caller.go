package dashboard

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/text"
)

// caller is who asks.
type caller struct {
	name   string // empty when nobody told
	client string // address, as far as it can be known
	agent  string // program, as it calls itself
	origin string // scheme and host by which it came
	source Source
	rights []Permission
	why    string // there is no name, though there should be
}

// may tells whether the caller has the permission for all locks.
func (c caller) may(p Permission) bool {
	return p == anybody || slices.Contains(c.rights, View) && slices.Contains(c.rights, p)
}

// mayFor tells whether the caller has the permission for the locks of this owner.
func (c caller) mayFor(p Permission, owner string) bool {
	return c.may(p) || slices.Contains(c.rights, View) &&
		slices.ContainsFunc(c.rights, func(right Permission) bool { return right.covers(p, owner) })
}

// maySome tells whether there may be a lock for which the caller has the permission.
func (c caller) maySome(p Permission) bool {
	return c.may(p) || slices.Contains(c.rights, View) &&
		slices.ContainsFunc(c.rights, func(right Permission) bool { return right.what() == p })
}

type callerKey struct{}

// callerOf is who sent the request; nobody, who may nothing, where identify was not asked yet.
func callerOf(r *http.Request) caller {
	c, _ := r.Context().Value(callerKey{}).(caller)
	return c
}

// identify finds out who asks. What the caller may do is for the handlers to check.
func (d *Dashboard) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, d.whoAsks(r))))
	})
}

func (d *Dashboard) whoAsks(r *http.Request) caller {
	a := &d.config.Access
	peer := peerOf(r)
	c := caller{source: a.Source, client: a.clientOf(r, peer), agent: text.Visible(text.Clip(r.UserAgent(), maxLogged)),
		origin: d.urls.originFor(r)}
	var groups []string
	switch a.Source {
	case SourceNone:
		c.rights = []Permission{View, Backtrace}
	case SourceBasic:
		c.name, c.why = a.basicName(r)
	case SourceMTLS:
		c.name, c.why = certificateName(r)
	case SourceHeader:
		c.name, groups, c.why = a.headerName(r, peer)
	}
	if permissions := a.permissions(); c.name != "" && permissions == nil {
		c.rights = []Permission{View, Backtrace}
	} else if c.name != "" {
		c.rights = permissions.grants(c.name, groups)
	}
	if d.config.HideBacktraces {
		c.rights = slices.DeleteFunc(slices.Clone(c.rights), func(p Permission) bool { return p.what() == Backtrace })
	}
	return c
}

// basicName is the user whose password the web server has checked.
func (a *Access) basicName(r *http.Request) (name, why string) {
	name, _, ok := r.BasicAuth()
	if !ok || !a.KnownUser(name) {
		return "", "no password was asked for"
	}
	return usableName(name)
}

// certificateName is the first name in the certificate that the web server has verified. A common name is none:
// authorities check the alternative names.
func certificateName(r *http.Request) (name, why string) {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.VerifiedChains[0]) == 0 {
		return "", "there is no verified client certificate"
	}
	leaf := r.TLS.VerifiedChains[0][0]
	switch {
	case len(leaf.EmailAddresses) > 0:
		return usableName(leaf.EmailAddresses[0])
	case len(leaf.URIs) > 0:
		return usableName(leaf.URIs[0].String())
	case len(leaf.DNSNames) > 0:
		return usableName(leaf.DNSNames[0])
	}
	return "", "the client certificate has no subject alternative name"
}

// headerName is what a trusted proxy says. Headers that come twice are refused: nobody knows which one the proxy has
// set.
func (a *Access) headerName(r *http.Request, peer netip.Addr) (name string, groups []string, why string) {
	names := r.Header.Values(a.Header)
	switch {
	case !a.trusted(peer):
		return "", nil, "the request did not come through a trusted proxy"
	case len(names) == 0:
		return "", nil, "the proxy did not say who asks"
	case len(names) > 1:
		return "", nil, "the proxy said more than once who asks"
	}
	if name, why = usableName(names[0]); why != "" || a.GroupsHeader == "" {
		return name, nil, why
	}
	listed := r.Header.Values(a.GroupsHeader)
	if len(listed) > 1 {
		return "", nil, "the proxy said more than once which groups the caller is in"
	}
	for _, list := range listed {
		groups = strings.Split(list, ",")
	}
	return name, groups, ""
}

// maxCallerName is how long the name of a caller may be, in bytes.
const maxCallerName = 256

// usableName refuses names that a reader of the audit trail could take for others.
func usableName(name string) (usable, why string) {
	odd := func(c rune) bool { return !unicode.IsPrint(c) }
	if name == "" || len(name) > maxCallerName || !utf8.ValidString(name) || strings.ContainsFunc(name, odd) ||
		strings.TrimSpace(name) != name {
		return "", "the name of the caller can not be used"
	}
	return name, ""
}

// peerOf is the other end of the connection.
func peerOf(r *http.Request) netip.Addr {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Addr{}
	}
	return address.Unmap().WithZone("")
}

// clientOf is the address that sent the request: the last one in the chain of proxies that is not a trusted one.
func (a *Access) clientOf(r *http.Request, peer netip.Addr) string {
	client := peer
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		address, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil || !a.trusted(client) {
			break
		}
		client = address.Unmap().WithZone("")
	}
	if !client.IsValid() {
		return "unknown"
	}
	return client.String()
}
