package dashboard

import (
	"fmt"
	"net/url"
	"strings"
)

// checkExternalURL returns the origin and the path of the external URL; both are empty for an empty one.
func checkExternalURL(s string) (origin, path string, err error) {
	if s == "" {
		return "", "", nil
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return "", "", fmt.Errorf("the external URL %q cannot be read", s)
	case u.Scheme == "" && u.Host == "" && strings.HasPrefix(u.Path, "/"):
		return "", u.Path, nil
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return "", "", fmt.Errorf("the external URL %q must begin with http:// or https:// and name a host, or be a "+
			"path", s)
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return "", "", fmt.Errorf("the external URL %q must not hold a query, a fragment or a user", s)
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
