package access

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/text"
)

type Caller struct {
	Name        string // empty if unknown
	Client      string // address, as far as it can be known
	Agent       string // program, as it calls itself
	Origin      string // scheme and host by which it came
	Source      Source
	Groups      string // that the proxy named, as people see them
	Permissions []Permission
	WhyUnnamed  string // why there is no name, although there should be one; else empty
}

// May reports whether the caller has the permission for all locks.
func (c Caller) May(p Permission) bool {
	return p == Anybody || slices.Contains(c.Permissions, View) && slices.Contains(c.Permissions, p)
}

// MayFor reports whether the caller has the permission for the locks of this owner.
func (c Caller) MayFor(p Permission, owner string) bool {
	return c.May(p) || slices.Contains(c.Permissions, View) &&
		slices.ContainsFunc(c.Permissions, func(right Permission) bool { return right.covers(p, owner) })
}

// MaySome reports whether there may be a lock for which the caller has the permission.
func (c Caller) MaySome(p Permission) bool {
	return c.May(p) || slices.Contains(c.Permissions, View) &&
		slices.ContainsFunc(c.Permissions, func(right Permission) bool { return right.withoutOwner() == p })
}

// Identify finds out who sent the request, and what that caller may do.
func (c *Config) Identify(r *http.Request) Caller {
	const maxAgent = 256
	peer := peerOf(r)
	caller := Caller{Source: c.Source, Client: c.clientOf(r, peer),
		Agent: text.Visible(text.Clip(r.UserAgent(), maxAgent))}
	var groups []string
	switch c.Source {
	case SourceNone:
		caller.Permissions = []Permission{View, Backtrace}
	case SourceBasic:
		caller.Name, caller.WhyUnnamed = c.basicName(r)
	case SourceMTLS:
		caller.Name, caller.WhyUnnamed = certificateName(r)
	case SourceHeader:
		caller.Name, groups, caller.WhyUnnamed = c.headerName(r, peer)
		caller.Groups = shownGroups(groups)
	}
	switch {
	case caller.Name == "":
	case c.Permissions == nil:
		caller.Permissions = []Permission{View, Backtrace}
	default:
		caller.Permissions = c.Permissions().grants(caller.Name, groups)
	}
	return caller
}

// Without returns the caller without a permission, for any owner.
func (c Caller) Without(p Permission) Caller {
	other := func(right Permission) bool { return right.withoutOwner() == p }
	c.Permissions = slices.DeleteFunc(slices.Clone(c.Permissions), other)
	return c
}

func (c Caller) DisplayName() string {
	if c.Name == "" {
		return "a caller without a name"
	}
	return text.Visible(c.Name)
}

const maxGroupsShown = 20

// shownGroups returns the first groups, as people see them: "dev", "ops".
func shownGroups(groups []string) string {
	var shown []string
	for _, group := range groups[:min(len(groups), maxGroupsShown)] {
		shown = append(shown, `"`+text.Visible(text.Clip(group, maxCallerName))+`"`)
	}
	list := strings.Join(shown, ", ")
	if more := len(groups) - len(shown); more > 0 {
		list += " and " + text.Thousands(more) + " more"
	}
	return list
}

// DescribeGroups returns a sentence about the groups that the proxy named, for refusals; empty without a groups header.
func (c *Config) DescribeGroups(caller Caller) string {
	switch {
	case c.GroupsHeader == "":
		return ""
	case caller.Groups == "":
		return " The header " + c.GroupsHeader + " names no group."
	}
	return " The header " + c.GroupsHeader + " names the groups " + caller.Groups + "."
}

// basicName returns the user whose password the web server has checked.
func (c *Config) basicName(r *http.Request) (name, why string) {
	name, _, ok := r.BasicAuth()
	if !ok || !c.KnownUser(name) {
		return "", "no password was asked for"
	}
	return usableName(name)
}

// certificateName returns the first name in the certificate that the web server has verified. A common name is none:
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

// headerName returns the name and groups that a trusted proxy set. Commas separate groups; proxies quote none. Repeated
// headers are refused: the caller may have sent one of them.
func (c *Config) headerName(r *http.Request, peer netip.Addr) (name string, groups []string, why string) {
	names := r.Header.Values(c.Header)
	switch {
	case !c.trusted(peer):
		return "", nil, "the request did not come through a trusted proxy"
	case len(names) == 0:
		return "", nil, "the proxy sent no name"
	case len(names) > 1:
		return "", nil, "the proxy sent more than one name"
	}
	if name, why = usableName(names[0]); why != "" || c.GroupsHeader == "" {
		return name, nil, why
	}
	listed := r.Header.Values(c.GroupsHeader)
	if len(listed) > 1 {
		return "", nil, "the proxy sent more than one list of groups"
	}
	for group := range strings.SplitSeq(strings.Join(listed, ""), ",") {
		if group = strings.TrimSpace(group); group != "" {
			groups = append(groups, group)
		}
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
		return "", "the name of the caller cannot be used"
	}
	return name, ""
}

// peerOf returns the other end of the connection.
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

// clientOf returns the address that sent the request: the last one in the chain of proxies that is not a trusted one.
func (c *Config) clientOf(r *http.Request, peer netip.Addr) string {
	client := peer
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		address, err := netip.ParseAddr(strings.TrimSpace(hop))
		if err != nil || !c.trusted(client) {
			break
		}
		client = address.Unmap().WithZone("")
	}
	if !client.IsValid() {
		return "unknown"
	}
	return client.String()
}
