// Package flags defines the flags that several programs share, and gives every flag an environment variable.
//
// The value of a flag comes from, in this order: the command line; the program's own variable, which is its prefix and
// the flag's name in capitals (UNLOCKER_ETCD_ENDPOINTS); for the connection to etcd, etcdctl's variable
// (ETCDCTL_ENDPOINTS); the default. An empty variable counts as unset. Passwords only come from files and variables,
// because command lines are public.
//
//	etcd, locks := flags.Etcd(fs), flags.Locks(fs)
//	flags.Bind(cmd, "UNLOCKER") // after all flags and commands are defined
package flags

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Etcd defines the flags of the connection to etcd. The settings' Check reports whether they fit together.
func Etcd(fs *pflag.FlagSet) *etcdconn.Settings {
	s := etcdconn.Defaults()
	fs.StringSliceVar(&s.Endpoints, "etcd.endpoints", s.Endpoints,
		"`host:port` of etcd's members, comma-separated or repeated; uses TLS with https:// before each, or with any "+
			"TLS flag")
	fs.StringVar(&s.CACert, "etcd.cacert", "",
		"`file` with the CA certificates that etcd's certificates are verified with; default: the system's")
	fs.StringVar(&s.Cert, "etcd.cert", "", "`file` with the client certificate; reread for every connection")
	fs.StringVar(&s.Key, "etcd.key", "", "`file` with the key of the client certificate")
	fs.StringVar(&s.ServerName, "etcd.server-name", "",
		"`name` to expect in etcd's certificates instead of the endpoint's host")
	fs.BoolVar(&s.InsecureSkipVerify, "etcd.insecure-skip-tls-verify", false,
		"do not verify etcd's certificates; for experiments only")
	fs.StringVar(&s.User, "etcd.user", "", "`name` of the etcd user")
	fs.StringVar(&s.PasswordFile, "etcd.password-file", "",
		"`file` with the password of the etcd user; reread at every login")
	fs.DurationVar(&s.RequestTimeout, "etcd.request-timeout", s.RequestTimeout, "timeout of one request to etcd")
	Positive(fs, "etcd.request-timeout")
	addEtcdctlVariables(fs, &s)
	return &s
}

// Locks defines the flag of the keys' prefix. It accepts valid prefixes only.
func Locks(fs *pflag.FlagSet) *protocol.Layout {
	l := protocol.DefaultLayout()
	prefix := l.Prefix()
	fs.Var(&checkedValue{&prefix, func(prefix string) (_ string, err error) {
		if err = checkPrefixes(prefix); err == nil {
			l, err = protocol.NewLayout(prefix)
		}
		return l.Prefix(), err
	}}, "locks.prefix", "`prefix` of the locks' keys; the etcd user's role needs permission for it")
	return &l
}

// checkPrefixes returns an error for a prefix of keys that is empty, or the next flag, because its value is missing.
func checkPrefixes(prefixes ...string) error {
	for _, prefix := range prefixes {
		if strings.Trim(prefix, "/") == "" || strings.HasPrefix(prefix, "--") {
			return errors.New("it must be how keys begin, such as app/")
		}
	}
	return nil
}

// EtcdLocks defines the flag that names the prefixes of other libraries' locks.
func EtcdLocks(fs *pflag.FlagSet, prefixes *[]string) {
	fs.Var(&checkedValue{new(string), func(list string) (string, error) {
		*prefixes = append(*prefixes, strings.Split(list, ",")...)
		return strings.Join(*prefixes, ","), checkPrefixes(*prefixes...)
	}}, "etcd-locks", "`prefix` of keys of other lock libraries, to show their locks, too; comma-separated or repeated")
}

// Log defines the flags for logging, with this default level.
func Log(fs *pflag.FlagSet, level string) *daemon.LogSettings {
	s := &daemon.LogSettings{}
	levels := []string{"trace", "debug", "info", "warn", "error"}
	Enum(fs, &s.Level, levels, "log.level", level, "lowest `level` to log")
	Enum(fs, &s.Format, []string{"auto", "json", "console"}, "log.format", "auto",
		"`format` of the log on stderr (auto is console on a terminal, json elsewhere)")
	return s
}

// LogFormat returns the format of the log that a command line, or else the environment, asks for, so that errors in
// either have it, too.
func LogFormat(environmentPrefix string, args []string) string {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	fs.Usage = func() {}
	format := fs.String("log.format", os.Getenv(environmentPrefix+"_LOG_FORMAT"), "")
	_ = fs.Parse(args) // Execute says what is wrong
	return *format
}

// Web defines the flags of HTTP servers, with these defaults. There is a flag for a separate address of probes and
// metrics only if the defaults have one.
func Web(fs *pflag.FlagSet, defaults daemon.WebSettings) *daemon.WebSettings {
	s := defaults
	s.ShutdownDelay = cmp.Or(s.ShutdownDelay, 5*time.Second)
	s.ShutdownTimeout = cmp.Or(s.ShutdownTimeout, 20*time.Second)
	fs.StringVar(&s.Address, "web.listen-address", s.Address, "`host:port` to serve on")
	if s.OpsAddress != "" {
		fs.StringVar(&s.OpsAddress, "web.ops-address", s.OpsAddress,
			"`host:port` to serve probes and metrics on, without TLS or login")
	}
	fs.StringVar(&s.ConfigFile, "web.config.file", s.ConfigFile,
		"`file` with TLS and users, in the format of Prometheus' exporter-toolkit")
	fs.StringVar(&s.ExternalURL, "web.external-url", s.ExternalURL,
		"`URL` at which users reach this server, for links")
	fs.StringVar(&s.RoutePrefix, "web.route-prefix", s.RoutePrefix,
		"`path` that all routes begin with; default: the path of the external URL")
	fs.DurationVar(&s.ShutdownDelay, "web.shutdown-delay", s.ShutdownDelay,
		"how long to keep working at shutdown after readiness turns to 503")
	fs.DurationVar(&s.ShutdownTimeout, "web.shutdown-timeout", s.ShutdownTimeout,
		"how long requests in flight may take to finish after that")
	fs.BoolVar(&s.Pprof, "web.enable-pprof", s.Pprof,
		"serve profiles below /debug/pprof/, on the address of the metrics")
	return &s
}

// Policy defines the flags that decide when locks are removed, and what happens to locks without readable deadlines.
// Their defaults are in p.
func Policy(fs *pflag.FlagSet, p *staleness.Policy) {
	fs.DurationVar(&p.ClockSkew, "sweep.clock-skew", p.ClockSkew,
		"largest expected difference between the clocks of two machines")
	fs.DurationVar(&p.MinWarning, "sweep.min-warning", p.MinWarning,
		"how long a lock must alert, without a gap, before it is removed; at least 5s longer than any holder's retry "+
			"delay")
	fs.DurationVar(&p.DefaultAlertAfter, "sweep.default-alert-after", p.DefaultAlertAfter,
		"when a lock without a readable alert time alerts, after it was first seen; 0s is never")
	fs.DurationVar(&p.DefaultAutoUnlockAfter, "sweep.default-auto-unlock-after", p.DefaultAutoUnlockAfter,
		"when a lock without a readable deadline is removed, after it was first seen; 0s is never")
	fs.DurationVar(&p.AbandonedGrace, "sweep.abandoned-grace", p.AbandonedGrace,
		"how long an unlocker must have known the proof of a holder's death before it removes the lock")
	fs.DurationVar(&p.LockDelay, "sweep.lock-delay", p.LockDelay,
		"how long to keep others out after a hold was ended by force or at its deadline, unless its record sets a "+
			"delay; up to 1h, 0s is no delay")
	abandoned := "report"
	fs.Var(&checkedValue{&abandoned, func(word string) (string, error) {
		if word != "report" && word != "unlock" {
			return "", errors.New("it must be report or unlock")
		}
		p.UnlockAbandoned = word == "unlock"
		return word, nil
	}}, "sweep.abandoned",
		"what to do about a lock whose holder is proven dead by a witness: report, or unlock without waiting "+
			"for its deadline")
}

// Enum defines a flag whose value is one of these words.
func Enum(fs *pflag.FlagSet, target *string, words []string, name, value, usage string) {
	*target = value
	fs.Var(&checkedValue{target, func(word string) (string, error) {
		if !slices.Contains(words, word) {
			return "", fmt.Errorf("it must be one of %s", strings.Join(words, ", "))
		}
		return word, nil
	}}, name, usage+": "+strings.Join(words, ", "))
}

// checkedValue is the value of a flag that is checked when it is set. check may return it in another form.
type checkedValue struct {
	value *string
	check func(string) (string, error)
}

func (v *checkedValue) String() string { return *v.value }
func (v *checkedValue) Type() string   { return "string" }

func (v *checkedValue) Set(text string) error {
	value, err := v.check(text)
	if err == nil {
		*v.value = value
	}
	return err
}

// multiSource is the value of a flag that other variables besides its own can set.
type multiSource struct {
	pflag.Value
	sources []source
}

// source is another variable for a flag. If it is the program's own, its name has no prefix yet.
type source struct {
	name string
	own  bool
	set  func(string) error
}

// addEtcdctlVariables makes the flags of the connection fall back to etcdctl's variables.
func addEtcdctlVariables(fs *pflag.FlagSet, s *etcdconn.Settings) {
	for flag, name := range map[string]string{
		"etcd.endpoints": "ETCDCTL_ENDPOINTS", "etcd.cacert": "ETCDCTL_CACERT", "etcd.cert": "ETCDCTL_CERT",
		"etcd.key":                      "ETCDCTL_KEY",
		"etcd.insecure-skip-tls-verify": "ETCDCTL_INSECURE_SKIP_TLS_VERIFY",
		"etcd.request-timeout":          "ETCDCTL_COMMAND_TIMEOUT",
	} {
		f := fs.Lookup(flag)
		f.Value = &multiSource{f.Value, []source{{name: name, set: f.Value.Set}}}
	}
	password := func(p string) error {
		s.Password = p
		return nil
	}
	// etcdctl accepts user:password. That password is for that user only, and only if no other is given.
	user := fs.Lookup("etcd.user")
	user.Value = &multiSource{user.Value, []source{{name: "ETCDCTL_USER", set: func(v string) error {
		var p string
		s.User, p, _ = strings.Cut(v, ":")
		if s.Password == "" && s.PasswordFile == "" {
			s.Password = p
		}
		return nil
	}}}}
	file := fs.Lookup("etcd.password-file")
	file.Value = &multiSource{file.Value, []source{
		{name: "ETCD_PASSWORD", own: true, set: password}, {name: "ETCDCTL_PASSWORD", set: password},
	}}
}

// Version makes a program print its build in one line, with the flag --version and, unless it has such a command
// already, the command version.
func Version(root *cobra.Command, line string) {
	root.Version = line
	root.SetVersionTemplate("{{.Version}}\n")
	for _, c := range root.Commands() {
		if c.Name() == "version" {
			return
		}
	}
	root.AddCommand(&cobra.Command{
		Use: "version", Short: "The version of this program", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), line)
			return err
		},
	})
}
