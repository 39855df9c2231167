package dashboard

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
)

// authenticate identifies the caller and makes the request. Handlers check the permissions.
func (d *Dashboard) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := d.app.Config.Access.Identify(r)
		c.Origin = d.app.URLs.OriginFor(r)
		if d.app.Config.HideBacktraces {
			c = c.Without(access.Backtrace)
		}
		made := d.app.NewRequest(r, c)
		next.ServeHTTP(w, made.Request)
	})
}

// hosts are the names of this dashboard, in lower case. After DNS rebinding, a browser sends the name of another site,
// and would let that site read our responses.
type hosts map[string]bool

func newHosts(origin string, more []string) (hosts, error) {
	list := hosts{"localhost": true}
	if u, err := url.Parse(origin); err == nil && u.Host != "" {
		list[normalHost(u.Hostname())] = true
	}
	for _, name := range more {
		if host := normalHost(name); host == "" || strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
			return nil, fmt.Errorf("%q is not the name of a host, such as mutexdash.example", name)
		}
		list[normalHost(name)] = true
	}
	return list, nil
}

func normalHost(name string) string { return strings.TrimSuffix(strings.ToLower(name), ".") }

// contains reports whether this Host header names this dashboard. An IP address is: it cannot be rebound. So is an
// empty host, which browsers never send.
func (h hosts) contains(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if _, err := netip.ParseAddr(strings.Replace(host, "%25", "%", 1)); err == nil || host == "" {
		return true
	}
	return h[normalHost(host)]
}

// checkHost refuses requests for other hosts, with a response that reveals nothing but the remedy.
func (d *Dashboard) checkHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.hosts.contains(r.Host) {
			next.ServeHTTP(w, r)
			return
		}
		p := &app.HTTPError{Status: http.StatusMisdirectedRequest, Code: "wrong_host",
			Title: "Not the name of this dashboard",
			Detail: fmt.Sprintf("The request names the host %s, which this dashboard does not serve. If users reach "+
				"the dashboard by that name, start it with "+
				"--web.external-url=https://NAME/, or with --web.allowed-hosts=NAME for one more name.",
				app.LogText(r.Host))}
		if d.wantsJSON(r) {
			d.fail(w, r, p)
			return
		}
		d.send(w, r, app.Answer{Status: p.Status, Type: "text/plain; charset=utf-8",
			Body: []byte(p.Title + "\n" + p.Detail + "\n")})
	})
}

// checkExternalURL returns the origin and the path of the external URL; both are empty for an empty one.
func checkExternalURL(s string) (origin, path string, err error) {
	if err := app.CheckBaseURL("the external URL", s); err != nil || s == "" {
		return "", "", err
	}
	u, err := url.Parse(s)
	if err != nil {
		return "", "", err
	}
	return u.Scheme + "://" + u.Host, u.Path, nil
}

// normalPrefix makes "a/b", "/a/b" and "/a/b/" the same.
func normalPrefix(path string) (string, error) {
	path = strings.Trim(path, "/")
	for part := range strings.SplitSeq(path, "/") {
		if part == "." || part == ".." || part == "" && path != "" || url.PathEscape(part) != part {
			return "", fmt.Errorf("the path %q must be plain: letters, digits, - and _ between slashes", path)
		}
	}
	if path == "" {
		return "/", nil
	}
	return "/" + path + "/", nil
}
