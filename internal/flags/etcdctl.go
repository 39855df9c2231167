package flags

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/internal/etcdconn"
)

// sourced is the value of a flag that can be set by other variables besides its own.
type sourced struct {
	pflag.Value
	more []source
}

// source is another variable for a flag. If it is the program's own, its name has no prefix yet.
type source struct {
	name string
	own  bool
	set  func(string) error
}

// likeEtcdctl lets the flags of the connection fall back on etcdctl's variables.
func likeEtcdctl(fs *pflag.FlagSet, s *etcdconn.Settings) {
	for flag, name := range map[string]string{
		"etcd.endpoints": "ETCDCTL_ENDPOINTS", "etcd.cacert": "ETCDCTL_CACERT", "etcd.cert": "ETCDCTL_CERT",
		"etcd.key":                      "ETCDCTL_KEY",
		"etcd.insecure-skip-tls-verify": "ETCDCTL_INSECURE_SKIP_TLS_VERIFY",
		"etcd.dial-timeout":             "ETCDCTL_DIAL_TIMEOUT", "etcd.request-timeout": "ETCDCTL_COMMAND_TIMEOUT",
	} {
		f := fs.Lookup(flag)
		f.Value = &sourced{f.Value, []source{{name: name, set: f.Value.Set}}}
	}
	password := func(p string) error {
		s.Password = p
		return nil
	}
	// etcdctl accepts user:password. That password is for that user only, and only if no other is given.
	user := fs.Lookup("etcd.user")
	user.Value = &sourced{user.Value, []source{{name: "ETCDCTL_USER", set: func(v string) error {
		var p string
		s.User, p, _ = strings.Cut(v, ":")
		if s.Password == "" && s.PasswordFile == "" {
			s.Password = p
		}
		return nil
	}}}}
	file := fs.Lookup("etcd.password-file")
	file.Value = &sourced{file.Value, []source{
		{name: "ETCD_PASSWORD", own: true, set: password}, {name: "ETCDCTL_PASSWORD", set: password},
	}}
}
