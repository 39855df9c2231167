// Package access finds out who sent a request, and says what that caller may do. It reads the request and nothing else.
package access

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Source is where the name of a caller comes from.
type Source string

// The sources. The web server in front of the handler proves what Basic and MTLS read; for Header a proxy does.
const (
	SourceNone   Source = "none"   // callers have no names, and all may view
	SourceBasic  Source = "basic"  // user and password
	SourceMTLS   Source = "mtls"   // a name in the client's certificate
	SourceHeader Source = "header" // a header that a proxy sets
)

// Config says who callers are and what they may do. The zero value lets all callers view, and no more.
type Config struct {
	Source       Source
	Header       string // with the name, for SourceHeader
	GroupsHeader string // with the groups, comma separated; may be empty
	// TrustedProxies are the only peers whose headers are believed: those above, and X-Forwarded-For for the client's
	// address.
	TrustedProxies []netip.Prefix
	// KnownUser reports whether the web server asks this user for a password, for SourceBasic. It is called for every
	// request: without users in its file the web server admits any caller under any name.
	KnownUser func(name string) bool
	// Permissions returns the current permissions; it is called for every request. Nil lets all callers with a name
	// view locks and backtraces.
	Permissions func() *Permissions
}

// Minimum lengths of the prefixes of trusted proxies: those of the largest private networks.
const (
	minPrefix4 = 8
	minPrefix6 = 7
)

// Check fills the gaps and refuses what contradicts itself. enabled are the permissions of enabled actions.
func (c *Config) Check(enabled []Permission) error {
	c.Source = cmp.Or(c.Source, SourceNone)
	if c.Source == SourceHeader {
		if err := c.checkHeader(); err != nil {
			return err
		}
	}
	if err := c.checkProxies(); err != nil {
		return err
	}
	switch {
	case !slices.Contains([]Source{SourceNone, SourceBasic, SourceMTLS, SourceHeader}, c.Source):
		return fmt.Errorf("there is no identity %q: none, basic, mtls or header", c.Source)
	case c.Source == SourceBasic && c.KnownUser == nil:
		return errors.New("identity basic needs users in the web configuration")
	}
	return c.checkPermissions(enabled)
}

func (c *Config) checkProxies() error {
	for _, proxy := range c.TrustedProxies {
		if proxy.Addr().Is4() && proxy.Bits() < minPrefix4 || proxy.Addr().Is6() && proxy.Bits() < minPrefix6 {
			return fmt.Errorf("trusting the addresses %s as proxies lets anybody be anybody: name smaller networks, "+
				"10.0.0.0/8 and fc00::/7 are the largest", proxy)
		}
	}
	return nil
}

func (c *Config) checkPermissions(enabled []Permission) error {
	if err := cmp.Or(c.checkAnyone(enabled, "force unlock", Unlock),
		c.checkAnyone(enabled, "asking holders to finish and giving them more time", Ask, Extend),
		c.checkAnyone(enabled, "acknowledging locks", Acknowledge)); err != nil {
		return err
	}
	switch {
	case c.Source == SourceNone && c.Permissions != nil:
		return errors.New("permissions need an identity other than none")
	case c.Permissions != nil && len(c.Permissions().Groups) > 0 && (c.Source != SourceHeader || c.GroupsHeader == ""):
		return errors.New("the permissions name groups, which only identity header with a groups header knows")
	}
	return nil
}

// checkAnyone refuses an action that is switched on and that nobody may do.
func (c *Config) checkAnyone(enabled []Permission, action string, needs ...Permission) error {
	switch {
	case !slices.Contains(enabled, needs[0]):
		return nil
	case c.Source == SourceNone:
		return fmt.Errorf("%s needs to know who does it: choose an identity other than none", action)
	case c.Permissions == nil || !slices.ContainsFunc(needs, c.Permissions().grantsAnyone):
		return fmt.Errorf("%s is switched on, but no permission file gives anybody the permission %s", action, needs[0])
	}
	return nil
}

func (c *Config) checkHeader() error {
	if len(c.TrustedProxies) == 0 {
		return errors.New("identity header needs trusted proxies: otherwise anybody could send the header")
	}
	for _, name := range []string{c.Header, c.GroupsHeader} {
		if strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return fmt.Errorf("%q is no name of a header", name)
		}
	}
	if c.Header == "" || strings.EqualFold(c.Header, c.GroupsHeader) {
		return errors.New("identity header needs a header for the name, and another one for the groups")
	}
	return nil
}

func (c *Config) trusted(address netip.Addr) bool {
	return slices.ContainsFunc(c.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(address.Unmap()) })
}

// ParseProxies reads addresses and networks, such as 10.0.0.0/8 or ::1.
func ParseProxies(list []string) ([]netip.Prefix, error) {
	var proxies []netip.Prefix
	for _, text := range list {
		prefix, err := netip.ParsePrefix(text)
		if address, err2 := netip.ParseAddr(text); err2 == nil {
			prefix, err = address.Unmap().Prefix(address.Unmap().BitLen())
		}
		if err != nil {
			return nil, fmt.Errorf("the trusted proxy %q is neither an address nor a network like 10.0.0.0/8", text)
		}
		if address := prefix.Addr(); address.Is4In6() && prefix.Bits() >= 96 {
			prefix = netip.PrefixFrom(address.Unmap(), prefix.Bits()-96)
		}
		proxies = append(proxies, prefix.Masked())
	}
	return proxies, nil
}
