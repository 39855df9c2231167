package etcdconn

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// target is a parsed endpoint.
type target struct {
	scheme string // http or https; "" only while parsing
	host   string // host:port
}

func (t target) String() string { return t.scheme + "://" + t.host }

// targets parses the endpoints. All have the same scheme: gRPC uses one kind of connection for all members.
func (s Settings) targets() ([]target, error) {
	if len(s.Endpoints) == 0 {
		return nil, errors.New("no etcd endpoint is given")
	}
	var all []target
	for _, endpoint := range s.Endpoints {
		t, err := parseEndpoint(strings.TrimSpace(endpoint))
		if err != nil {
			return nil, err
		}
		if len(all) > 0 && t.scheme != all[0].scheme {
			return nil, fmt.Errorf("the etcd endpoints %s and %s differ in their scheme: give all of them the same",
				s.Endpoints[0], endpoint)
		}
		all = append(all, t)
	}
	setting := s.tlsSetting()
	if all[0].scheme == "http" && setting != "" {
		return nil, fmt.Errorf("the etcd endpoint %s does not use TLS, but %s is given: write https:// or leave that "+
			"out",
			all[0], setting)
	}
	for i := range all {
		switch {
		case all[i].scheme != "":
		case setting != "":
			all[i].scheme = "https"
		default:
			all[i].scheme = "http"
		}
	}
	return all, nil
}

// tlsSetting names one of the given settings that need TLS, "" if there is none.
func (s Settings) tlsSetting() string {
	switch {
	case s.CACert != "":
		return "a CA certificate (--etcd.cacert)"
	case s.Cert != "":
		return "a client certificate (--etcd.cert)"
	case s.Key != "":
		return "a client key (--etcd.key)"
	case s.ServerName != "":
		return "a server name (--etcd.server-name)"
	case s.InsecureSkipVerify:
		return "leave to skip the verification of certificates (--etcd.insecure-skip-tls-verify)"
	}
	return ""
}

func parseEndpoint(endpoint string) (target, error) {
	if strings.Contains(endpoint, "@") { // not to be printed
		return target{}, errors.New("an etcd endpoint must not contain a user or password: " +
			"give them as user and password")
	}
	t := target{host: endpoint}
	if scheme, _, found := strings.Cut(endpoint, "://"); found {
		u, err := url.Parse(endpoint)
		if err != nil {
			return target{}, fmt.Errorf("the etcd endpoint %q is not a URL", endpoint)
		}
		if scheme != "http" && scheme != "https" {
			return target{}, fmt.Errorf("the etcd endpoint %q has the scheme %q: use http or https", endpoint, scheme)
		}
		if strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
			return target{}, fmt.Errorf("the etcd endpoint %q is more than scheme, host and port", endpoint)
		}
		t = target{scheme, u.Host}
	}
	host, port, err := net.SplitHostPort(t.host)
	if err != nil || host == "" {
		return target{}, fmt.Errorf("the etcd endpoint %q is not of the form host:port", endpoint)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return target{}, fmt.Errorf("the etcd endpoint %q has no valid port (etcd's own is 2379)", endpoint)
	}
	return t, nil
}
