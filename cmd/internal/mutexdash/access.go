package mutexdash

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"

	"github.com/rs/zerolog"
	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/dashboard/access"
)

const defaultHeader = "X-Forwarded-User"

type accessOptions struct {
	identity       string
	header, groups string
	proxies        []string
	permissions    string
	forceUnlock    bool
	askAndExtend   bool
	acknowledge    bool
}

func (o *accessOptions) flags(fs *pflag.FlagSet) {
	fs.StringVar(&o.identity, "web.identity", "none",
		"`source` of callers' names: none (everyone may view), basic, mtls, or header, which a trusted proxy sets")
	fs.StringVar(&o.header, "web.identity.header", defaultHeader,
		"`header` with the caller's name, for identity header")
	fs.StringVar(&o.groups, "web.identity.groups-header", "",
		"`header` with the caller's groups, comma-separated, for identity header")
	fs.StringSliceVar(&o.proxies, "web.trusted-proxies", nil,
		"`addresses` and networks of the proxies whose headers are trusted, comma-separated or repeated")
	fs.StringVar(&o.permissions, "web.permissions-file", "",
		"YAML `file` that grants view, backtrace, audit, unlock, ask, extend and acknowledge to everyone, users and "+
			"groups; reread when it changes; without it, callers with a name may view locks and backtraces")
	fs.BoolVar(&o.forceUnlock, "web.enable-force-unlock", false,
		"allow callers with the permission unlock to end holds and lock delays; needs an identity, a permissions "+
			"file, and an etcd role with write permission")
	fs.BoolVar(&o.askAndExtend, "web.enable-ask-and-extend", false,
		"allow callers with the permission ask to ask holders to finish, and those with the permission extend to give "+
			"them more time; needs what force unlock needs")
	fs.BoolVar(&o.acknowledge, "web.enable-acknowledge", false,
		"allow callers with the permission acknowledge to acknowledge locks, for everyone to see; needs what force "+
			"unlock needs")
}

func (o *accessOptions) enabled() (list []access.Permission) {
	if o.forceUnlock {
		list = append(list, access.Unlock)
	}
	if o.askAndExtend {
		list = append(list, access.Ask, access.Extend)
	}
	if o.acknowledge {
		list = append(list, access.Acknowledge)
	}
	return list
}

// read reads the files that the flags name, and returns an error if the options contradict each other.
func (o *accessOptions) read(web daemon.WebSettings, log zerolog.Logger) (access.Config, error) {
	a := access.Config{Source: access.Source(o.identity), Header: o.header, GroupsHeader: o.groups}
	if a.Source != access.SourceHeader && (o.header != defaultHeader || o.groups != "") {
		return a, fmt.Errorf("--web.identity.header and --web.identity.groups-header are for --web.identity=header, "+
			"not %s", a.Source)
	}
	var err error
	if a.TrustedProxies, err = access.ParseProxies(o.proxies); err != nil {
		return a, err
	}
	if o.permissions != "" {
		now, err := readPermissions(o.permissions)
		if err != nil {
			return a, err
		}
		a.Permissions = rereadPermissions(o.permissions, now, log)
	}
	switch a.Source {
	case access.SourceBasic:
		users, err := web.ReadConfig()
		if err != nil || len(users.Users) == 0 {
			return a, errors.Join(errors.New("identity basic needs basic_auth_users in the file of --web.config.file"),
				err)
		}
		a.KnownUser = func(name string) bool {
			now, err := web.ReadConfig()
			_, known := now.Users[name]
			return err == nil && known
		}
	case access.SourceMTLS:
		config, err := web.ReadConfig()
		if err != nil || config.TLS.ClientAuth != "RequireAndVerifyClientCert" {
			return a, errors.Join(errors.New("identity mtls needs client_auth_type: RequireAndVerifyClientCert in "+
				"the file of --web.config.file"), err)
		}
	}
	return a, nil
}

func readPermissions(file string) (*access.Permissions, error) {
	var p *access.Permissions
	text, err := os.ReadFile(file)
	if err == nil {
		p, err = access.ParsePermissions(text)
	}
	if err != nil {
		return nil, fmt.Errorf("the permissions file %s (--web.permissions-file): %w", file, err)
	}
	return p, nil
}

// rereadPermissions returns a function that returns the current permissions of the file, because revoking one must take
// effect at once. While the file is unreadable or invalid, the last valid permissions apply.
func rereadPermissions(file string, now *access.Permissions, log zerolog.Logger) func() *access.Permissions {
	var (
		mu      sync.Mutex
		read    []byte
		problem string
	)
	return func() *access.Permissions {
		mu.Lock()
		defer mu.Unlock()
		text, err := os.ReadFile(file)
		if err == nil && read != nil && bytes.Equal(text, read) {
			return now
		}
		read = text
		fresh, err := readPermissions(file)
		switch {
		case err != nil && err.Error() != problem:
			problem = err.Error()
			log.Error().Err(err).Str("file", file).
				Msg("the permissions file cannot be used; the last valid permissions apply")
		case err == nil && (problem != "" || !reflect.DeepEqual(fresh, now)):
			problem = ""
			log.Info().Str("file", file).Msg("the permissions were reread")
		}
		if err == nil {
			now = fresh
		}
		return now
	}
}
