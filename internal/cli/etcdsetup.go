package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/authpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
)

type etcdSetupOptions struct {
	app         *app
	dryRun      bool
	print       bool
	roles       string
	clients     []string
	witness     bool
	forceUnlock bool
	passwords   string
	enableAuth  bool
}

func newEtcdSetup(a *app) *cobra.Command {
	o := &etcdSetupOptions{app: a}
	cmd := &cobra.Command{
		Use:   "etcd-setup",
		Short: "Create the etcd users and roles that the programs need",
		Long: `Create the etcd roles and users below that do not exist yet, for the prefix of --locks.prefix:

  locks-write    readwrite on the prefix: unlocker, and each --client
  locks-read     read on the prefix: mutexdash, which needs locks-write for --force-unlock
  locks-witness  readwrite on PREFIX.deaths/ and PREFIX.suspicions/: unlocker-witness, with --witness

What exists is left alone, so you can run it again. Users have no password, and are the common names
of client certificates, unless --password-dir is given: then each new user gets the password in
DIRECTORY/USER.password. If the file is missing or empty, a random password is written to it first;
create it beforehand to decide who may read it.

etcd enforces none of this until authentication is on. --enable-auth turns it on as the last step.
From then on etcd refuses every client that is not a user, including those of other applications, so
create all users first. You must be root: --etcd.user=root with a password, which becomes root's, or a
client certificate for root on an etcd with --client-cert-auth.

It prints what it does as etcdctl commands.`,
		Example: `  mutexctl etcd-setup --dry-run --client billing
  mutexctl etcd-setup --witness --client billing --password-dir /etc/unlocker
  mutexctl etcd-setup --enable-auth --etcd.user root --etcd.password-file root.password`,
		Args: argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.dryRun, "dry-run", false, "print commands for what is missing, and change nothing")
	fs.BoolVar(&o.print, "print", false, "print commands for everything, without asking etcd")
	fs.StringArrayVar(&o.clients, "client", nil, "`user` of a program that takes locks; repeatable")
	fs.BoolVar(&o.witness, "witness", false, "also create the role and user of the witnesses")
	fs.BoolVar(&o.forceUnlock, "force-unlock", false, "let the dashboard end holds")
	fs.StringVar(&o.roles, "role-prefix", "locks",
		"first `word` of the roles' names; each prefix of locks needs its own")
	fs.StringVar(&o.passwords, "password-dir", "", "`directory` with the password files of new users")
	fs.BoolVar(&o.enableAuth, "enable-auth", false, "turn authentication on, as the last step")
	return cmd
}

func (o *etcdSetupOptions) run(ctx context.Context) error {
	if err := o.check(); err != nil {
		return err
	}
	layout := *o.app.locks
	if o.print {
		return o.carryOut(ctx, nil, o.steps(layout, &etcdAccess{}))
	}
	s, err := o.app.open(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	there, err := s.access(ctx)
	if err != nil {
		return err
	}
	steps := o.steps(layout, there)
	o.noteExcessRights(layout, there)
	if len(steps) == 0 {
		o.app.note("nothing to do: roles and users are as required")
		return nil
	}
	if o.enableAuth && !there.enabled && !o.dryRun {
		if err := o.checkLockout(); err != nil {
			return err
		}
	}
	err = o.carryOut(ctx, s, steps)
	if err == nil && !there.enabled && !o.enableAuth && !o.dryRun {
		o.app.note("authentication is off, so any client may do anything until --enable-auth")
	}
	return err
}

func (o *etcdSetupOptions) check() error {
	name := func(s string) bool { return s != "" && text.Visible(s) == s && !strings.ContainsAny(s, "/ ") }
	if !name(o.roles) {
		return usageErrorf("--role-prefix %s cannot begin the name of a role", text.Visible(o.roles))
	}
	for _, client := range o.clients {
		switch {
		case !name(client):
			return usageErrorf("--client %s cannot be the name of a user", text.Visible(client))
		case slices.Contains([]string{rootName, unlockerUser, dashboardUser, witnessUser}, client):
			return usageErrorf("--client %s is the name of another user", client)
		}
	}
	if o.dryRun && o.print {
		return usageErrorf("--dry-run asks etcd what is missing, --print does not ask: give one of them")
	}
	return nil
}

// checkLockout returns an error if turning authentication on would lock us out.
func (o *etcdSetupOptions) checkLockout() error {
	user := o.app.etcd.User
	if user == "" && o.app.etcd.Cert != "" {
		pair, err := tls.LoadX509KeyPair(o.app.etcd.Cert, o.app.etcd.Key)
		if err != nil {
			return &statusError{ExitUsage, err}
		}
		user = pair.Leaf.Subject.CommonName
	}
	if user != rootName {
		return usageErrorf("authentication stays off: afterwards only root could change users or switch it off again, "+
			"and we are %s; give --etcd.user=root with its password, or a client certificate for root",
			cmp.Or(text.Visible(user), "nobody"))
	}
	return nil
}

type etcdAccess struct {
	enabled bool
	users   map[string][]string // their roles
	roles   map[string][]*authpb.Permission
}

func (s *session) access(ctx context.Context) (*etcdAccess, error) {
	request, cancel := s.request(ctx)
	defer cancel()
	there := &etcdAccess{users: map[string][]string{}, roles: map[string][]*authpb.Permission{}}
	status, err := s.client.AuthStatus(request)
	users, noUsers := s.client.UserList(request)
	roles, noRoles := s.client.RoleList(request)
	if err := cmp.Or(err, noUsers, noRoles); err != nil {
		return nil, s.explain(ctx, "read etcd's users and roles", err)
	}
	there.enabled = status.Enabled
	for _, name := range users.Users {
		user, err := s.client.UserGet(request, name)
		if err != nil {
			return nil, s.explain(ctx, "read etcd's user "+text.Visible(name), err)
		}
		there.users[name] = user.Roles
	}
	for _, name := range roles.Roles {
		role, err := s.client.RoleGet(request, name)
		if err != nil {
			return nil, s.explain(ctx, "read etcd's role "+text.Visible(name), err)
		}
		there.roles[name] = role.Perm
	}
	return there, nil
}

func (r etcdRight) matches(p *authpb.Permission) bool {
	return string(p.Key) == r.area && string(p.RangeEnd) == clientv3.GetPrefixRangeEnd(r.area) &&
		int32(p.PermType) == int32(r.kind)
}

// noteExcessRights reports permissions of our roles beyond those that they need.
func (o *etcdSetupOptions) noteExcessRights(l protocol.Layout, there *etcdAccess) {
	for _, role := range etcdRoles(l, o.roles, true) {
		for _, p := range there.roles[role.name] {
			if !slices.ContainsFunc(role.rights, func(r etcdRight) bool { return r.matches(p) }) {
				o.app.note("the role %s also has %s on the keys from %s: left as it is", role.name,
					strings.ToLower(p.PermType.String()), text.Visible(string(p.Key)))
			}
		}
	}
}

// etcdStep is one change of etcd's users and roles.
type etcdStep struct {
	command string // the arguments of etcdctl
	do      func(context.Context, *clientv3.Client) error
}

// errorOf returns the error of a call whose response says no more.
func errorOf[T any](_ T, err error) error { return err }

// steps returns the changes that are missing.
func (o *etcdSetupOptions) steps(l protocol.Layout, there *etcdAccess) (steps []etcdStep) {
	for _, role := range etcdRoles(l, o.roles, o.witness) {
		perms, exists := there.roles[role.name]
		if !exists {
			steps = append(steps, etcdStep{"role add " + role.name,
				func(ctx context.Context, c *clientv3.Client) error { return errorOf(c.RoleAdd(ctx, role.name)) }})
		}
		for _, right := range role.rights {
			if !slices.ContainsFunc(perms, right.matches) {
				steps = append(steps, grantRight(role.name, right))
			}
		}
	}
	for _, user := range etcdUsers(o.roles, o.witness, o.forceUnlock, o.clients) {
		has, exists := there.users[user.name]
		if !exists {
			steps = append(steps, addUser(user.name, o.passwords))
		}
		for _, role := range user.roles {
			if !slices.Contains(has, role) {
				steps = append(steps, grantRole(user.name, role))
			}
		}
	}
	if o.enableAuth && !there.enabled {
		steps = append(steps, o.enableSteps(there)...)
	}
	return steps
}

func grantRight(role string, right etcdRight) etcdStep {
	kind := strings.ToLower(authpb.Permission_Type(right.kind).String()) // as etcdctl spells it
	return etcdStep{
		fmt.Sprintf("role grant-permission --prefix=true %s %s %s", role, kind, text.ShellWord(right.area)),
		func(ctx context.Context, c *clientv3.Client) error {
			end := clientv3.GetPrefixRangeEnd(right.area)
			return errorOf(c.RoleGrantPermission(ctx, role, right.area, end, right.kind))
		},
	}
}

func grantRole(user, role string) etcdStep {
	return etcdStep{"user grant-role " + user + " " + role, func(ctx context.Context, c *clientv3.Client) error {
		return errorOf(c.UserGrantRole(ctx, user, role))
	}}
}

// addUser adds a user with the password in its file in the directory; without a directory, it has no password.
func addUser(name, directory string) etcdStep {
	if directory == "" {
		return etcdStep{"user add " + name + " --no-password", func(ctx context.Context, c *clientv3.Client) error {
			return errorOf(c.UserAddWithOptions(ctx, name, "", &clientv3.UserAddOptions{NoPassword: true}))
		}}
	}
	file := filepath.Join(directory, name+".password")
	return etcdStep{"user add " + name + " --interactive=false < " + text.ShellWord(file),
		func(ctx context.Context, c *clientv3.Client) error {
			password, err := passwordIn(file)
			if err != nil {
				return err
			}
			return errorOf(c.UserAdd(ctx, name, password))
		}}
}

// passwordIn returns the password in a file. If the file is missing or empty, it first writes a random one to it.
func passwordIn(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	password := strings.TrimRight(string(content), "\r\n") // as our programs do
	if password != "" {
		return password, nil
	}
	password = rand.Text()
	return password, os.WriteFile(file, []byte(password+"\n"), 0o600) // an existing file keeps its mode
}

// enableSteps returns the changes that make us root and turn authentication on.
func (o *etcdSetupOptions) enableSteps(there *etcdAccess) (steps []etcdStep) {
	roles, exists := there.users[rootName]
	switch {
	case o.app.etcd.User != "":
		steps = append(steps, o.rootPassword(exists))
	case !exists:
		steps = append(steps, addUser(rootName, ""))
	}
	if !slices.Contains(roles, rootName) {
		steps = append(steps, grantRole(rootName, rootName))
	}
	return append(steps, etcdStep{"auth enable", func(ctx context.Context, c *clientv3.Client) error {
		if _, err := c.AuthEnable(ctx); err != nil {
			return err
		}
		return errorOf(c.UserGet(ctx, rootName))
	}})
}

// rootPassword sets root's password to ours. While authentication is off, there is no way to compare them.
func (o *etcdSetupOptions) rootPassword(exists bool) etcdStep {
	verb := "add"
	if exists {
		verb = "passwd"
	}
	file := text.ShellWord(cmp.Or(o.app.etcd.PasswordFile, "root.password"))
	return etcdStep{"user " + verb + " root --interactive=false < " + file,
		func(ctx context.Context, c *clientv3.Client) error {
			password, err := o.app.etcd.ReadPassword()
			switch {
			case err != nil:
				return err
			case exists:
				return errorOf(c.UserChangePassword(ctx, rootName, password))
			}
			return errorOf(c.UserAdd(ctx, rootName, password))
		}}
}

// carryOut performs the steps, unless they are only to be printed, and prints each as an etcdctl command.
func (o *etcdSetupOptions) carryOut(ctx context.Context, s *session, steps []etcdStep) error {
	for _, step := range steps {
		if !o.print && !o.dryRun {
			request, cancel := s.request(ctx)
			err := step.do(request, s.client)
			cancel()
			if err != nil {
				return s.explain(ctx, "etcdctl "+step.command, err)
			}
		}
		if _, err := fmt.Fprintln(o.app.Stdout, "etcdctl "+step.command); err != nil {
			return err
		}
	}
	return nil
}
