// Package flags defines every flag that programs share, once, and gives all flags an environment variable.
//
// The value of a flag is taken from, in this order: the command line; the variable of the program, which is its prefix
// and the flag's name in capitals (UNLOCKER_ETCD_ENDPOINTS); for the connection to etcd, etcdctl's variable
// (ETCDCTL_ENDPOINTS); the default. An empty variable counts as unset. Passwords are only taken from files and
// variables: command lines are public.
//
//	etcd, locks := flags.Etcd(fs), flags.Locks(fs)
//	flags.Bind(cmd, "UNLOCKER") // when all flags and commands are defined
package flags

import (
	"cmp"
	"time"

	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Etcd defines the flags of the connection to etcd. Whether they fit together is for the settings' Check.
func Etcd(fs *pflag.FlagSet) *etcdconn.Settings {
	s := etcdconn.Defaults()
	fs.StringSliceVar(&s.Endpoints, "etcd.endpoints", s.Endpoints,
		"`host:port` of etcd's members, comma separated or repeated; TLS with https:// before each, or with any of the TLS flags")
	fs.StringVar(&s.CACert, "etcd.cacert", "",
		"`file` with the authorities that sign etcd's certificates; without it the system's are trusted")
	fs.StringVar(&s.Cert, "etcd.cert", "", "`file` with our client certificate; read again for every connection")
	fs.StringVar(&s.Key, "etcd.key", "", "`file` with the key of our client certificate")
	fs.StringVar(&s.ServerName, "etcd.server-name", "",
		"`name` to expect in etcd's certificates instead of the endpoint's")
	fs.BoolVar(&s.InsecureSkipVerify, "etcd.insecure-skip-tls-verify", false,
		"do not verify etcd's certificates: for experiments only")
	fs.StringVar(&s.User, "etcd.user", "", "`name` of our etcd user")
	fs.StringVar(&s.PasswordFile, "etcd.password-file", "",
		"`file` with the password of our etcd user; read again when etcd asks for it")
	fs.DurationVar(&s.DialTimeout, "etcd.dial-timeout", s.DialTimeout, "time for one attempt to connect to one member")
	fs.DurationVar(&s.RequestTimeout, "etcd.request-timeout", s.RequestTimeout, "time for one request to etcd")
	fs.DurationVar(&s.KeepaliveTime, "etcd.keepalive-time", s.KeepaliveTime,
		"silence after which a connection is asked for a sign of life; at least 10s")
	fs.DurationVar(&s.KeepaliveTimeout, "etcd.keepalive-timeout", s.KeepaliveTimeout,
		"time for that sign before the connection is given up")
	likeEtcdctl(fs, &s)
	return &s
}

// LockSettings say where the locks are.
type LockSettings struct {
	Prefix string // with its final slash
}

// Layout is the layout of the keys below the prefix.
func (s LockSettings) Layout() (protocol.Layout, error) { return protocol.NewLayout(s.Prefix) }

// Locks defines the flag of the keys' prefix. It takes only prefixes that can be used.
func Locks(fs *pflag.FlagSet) *LockSettings {
	s := &LockSettings{Prefix: protocol.DefaultPrefix}
	fs.Var((*prefixValue)(&s.Prefix), "locks.prefix",
		"`prefix` of the locks' keys, the range that our etcd role is for")
	return s
}

// Log defines the flags of the log.
func Log(fs *pflag.FlagSet) *daemon.LogSettings {
	s := &daemon.LogSettings{}
	choice(fs, &s.Level, daemon.LogLevels(), "log.level", "info", "lowest `level` that is logged")
	choice(fs, &s.Format, daemon.LogFormats(), "log.format", "auto",
		"`format` of the log on stderr, where auto is console on a terminal and json elsewhere")
	return s
}

// Web defines the flags of HTTP servers, with the addresses among the defaults. There is a flag for an address of its
// own for probes and metrics where the defaults have one.
func Web(fs *pflag.FlagSet, defaults daemon.WebSettings) *daemon.WebSettings {
	s := defaults
	s.ShutdownDelay, s.ShutdownTimeout = cmp.Or(s.ShutdownDelay, 5*time.Second), cmp.Or(s.ShutdownTimeout,
		20*time.Second)
	fs.StringVar(&s.Address, "web.listen-address", s.Address, "`host:port` to serve on")
	if s.OpsAddress != "" {
		fs.StringVar(&s.OpsAddress, "web.ops-address", s.OpsAddress,
			"`host:port` to serve probes and metrics on, without TLS and login")
	}
	fs.StringVar(&s.ConfigFile, "web.config.file", s.ConfigFile,
		"`file` with TLS and users, in the format of Prometheus' exporter-toolkit")
	fs.StringVar(&s.ExternalURL, "web.external-url", s.ExternalURL,
		"`URL` under which people reach this server, for links")
	fs.StringVar(&s.RoutePrefix, "web.route-prefix", s.RoutePrefix,
		"`path` that all routes begin with; without it, that of the external URL")
	fs.DurationVar(&s.ShutdownDelay, "web.shutdown-delay", s.ShutdownDelay,
		"time that everything works on at the end, after readiness has turned to 503")
	fs.DurationVar(&s.ShutdownTimeout, "web.shutdown-timeout", s.ShutdownTimeout,
		"time to finish what is in flight after that")
	fs.BoolVar(&s.Pprof, "web.enable-pprof", s.Pprof, "serve profiles below /debug/pprof/, beside the metrics")
	return &s
}

// Policy defines the flags of when locks are removed, and of locks without readable deadlines.
func Policy(fs *pflag.FlagSet) *staleness.Policy {
	p := staleness.DefaultPolicy()
	fs.DurationVar(&p.ClockSkew, "sweep.clock-skew", p.ClockSkew,
		"largest difference between the clocks of two machines")
	fs.DurationVar(&p.MinWarning, "sweep.min-warning", p.MinWarning,
		"time that a lock is shown as alerting, without a gap, before it is removed; longer than any holder's retry delay and 5s more")
	fs.DurationVar(&p.DefaultAlertAfter, "sweep.default-alert-after", p.DefaultAlertAfter,
		"time until a lock without a readable alert time alerts, since it was first seen; 0 is never")
	fs.DurationVar(&p.DefaultAutoUnlockAfter, "sweep.default-auto-unlock-after", p.DefaultAutoUnlockAfter,
		"time until a lock without a readable deadline is removed, since it was first seen; 0 is never")
	return &p
}
