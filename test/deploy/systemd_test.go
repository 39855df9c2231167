package deploy

import (
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// unit is what a service file says, by section and name; a name can stand more than once.
type unit map[string][]string

// units are the services that there are.
var units = []string{"unlocker", "mutexdash", "unlocker-witness"}

func readUnit(t *testing.T, program string) unit {
	t.Helper()
	file := repository + "/deploy/systemd/" + program + ".service"
	u := unit{}
	section := ""
	for line := range strings.Lines(read(t, file)) {
		line = strings.TrimSpace(line)
		name, value, pair := strings.Cut(line, "=")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		case pair:
			u[section+"."+name] = append(u[section+"."+name], value)
		default:
			t.Errorf("%s: %q", file, line)
		}
	}
	return u
}

func (u unit) one(t *testing.T, name string) string {
	t.Helper()
	if len(u[name]) != 1 {
		t.Fatalf("%s is given %d times", name, len(u[name]))
	}
	return u[name][0]
}

// environmentFile reads an EnvironmentFile as systemd does, as far as ours go.
func environmentFile(t *testing.T, file string) (all []string) {
	t.Helper()
	variable := regexp.MustCompile(`^[A-Z_]+=\S+$`)
	for line := range strings.Lines(read(t, file)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if !variable.MatchString(line) {
			t.Errorf("%s: %q", file, line)
		}
		all = append(all, line)
	}
	return all
}

// TestProgramsStartWithTheUnitsArguments starts them with the variables and credentials of their units and of the
// examples beside them, next to an etcd that asks for certificates.
func TestProgramsStartWithTheUnitsArguments(t *testing.T) {
	proctest.ReadSources(t)
	etcd := etcdtest.Start(t, etcdtest.ClientCerts(), etcdtest.Auth())
	etcd.AddUser(t, "unlocker", "", "/mutexes/", etcdtest.ReadWrite)
	etcd.AddUser(t, "mutexdash", "", "/mutexes/", etcdtest.Read)
	etcd.AddUser(t, "unlocker-witness", "", "/mutexes/", etcdtest.Read)
	mayState(t, etcd, "unlocker-witness", "/mutexes/")
	for _, program := range units {
		s := installed(t, etcd, etcd.Endpoint(), program, program)
		if start := s.one(t, "Service.ExecStart"); start != "/usr/local/bin/"+strings.ReplaceAll(program, "-", " ") {
			t.Errorf("%s starts %s", program, start)
		}
		if file := s.one(t, "Service.EnvironmentFile"); file != "/etc/unlocker/"+program+".env" {
			t.Errorf("%s reads %s", program, file)
		}
		proctest.Answers(t, s.url+"/readyz", http.StatusOK)
		proctest.Answers(t, s.url+"/metrics", http.StatusOK)
		end(t, s.Process)
	}
}

// service is a program that runs as its unit says.
type service struct {
	*proctest.Process
	unit
	etc string // the directory that stands for /etc/unlocker
	url string // of its metrics
}

// installed starts a program as its unit and the example beside it say, with the files of somebody's certificate.
func installed(t *testing.T, etcd *etcdtest.Server, endpoint, program, as string) *service {
	t.Helper()
	s := &service{unit: readUnit(t, program), etc: t.TempDir()}
	cert, key := etcd.CA().Issue(t, as)
	for name, from := range map[string]string{"ca.crt": etcd.CA().File(), program + ".crt": cert,
		program + ".key": key} {
		write(t, filepath.Join(s.etc, name), read(t, from))
	}
	command := strings.Split(program, "-") // and its verb
	variables := strings.ToUpper(command[0]) + "_"
	environment := append(s.environment(t, s.etc, program), variables+"ETCD_ENDPOINTS="+endpoint,
		"UNLOCKER_WITNESS_STATE_DIR="+t.TempDir())
	for i, variable := range environment {
		if listener, _, _ := strings.Cut(variable, "="); strings.HasSuffix(listener, "_ADDRESS") {
			address := proctest.FreeAddr(t)
			environment[i] = listener + "=" + address
			s.url = "http://" + address // of the last one: a dashboard's pages come first
		}
	}
	s.Process = start(t, environment, command[0], append(command[1:], "--web.shutdown-delay=0s")...)
	return s
}

// mayState gives a user of AddUser the rights of a witness.
func mayState(t *testing.T, etcd *etcdtest.Server, user, prefix string) {
	t.Helper()
	for _, area := range []string{prefix + ".deaths/", prefix + ".suspicions/"} {
		if _, err := etcd.Client(t).RoleGrantPermission(t.Context(), user, area, clientv3.GetPrefixRangeEnd(area),
			etcdtest.ReadWrite); err != nil {
			t.Fatal(err)
		}
	}
}

// environment is that of the unit and of the example beside it, where etc stands for /etc/unlocker. What the unit loads
// as a credential is a copy, as systemd makes it at the start.
func (u unit) environment(t *testing.T, etc, program string) (all []string) {
	t.Helper()
	credentials := t.TempDir()
	for _, credential := range u["Service.LoadCredential"] {
		name, file, _ := strings.Cut(credential, ":")
		write(t, filepath.Join(credentials, name), read(t, strings.ReplaceAll(file, "/etc/unlocker", etc)))
	}
	for _, line := range u["Service.Environment"] {
		all = append(all, strings.Fields(strings.ReplaceAll(line, "%d", credentials))...)
	}
	all = append(all, environmentFile(t, repository+"/deploy/systemd/"+program+".env")...)
	for i := range all {
		all[i] = strings.ReplaceAll(all[i], "/etc/unlocker", etc)
	}
	return all
}

// The handbook's instructions create the users of the units, and install all of their files. The units give time to
// end, and do not repeat mistakes.
func TestUnitsRunAsCreatedUsers(t *testing.T) {
	users := read(t, repository+"/deploy/systemd/unlocker.sysusers.conf")
	page := read(t, repository+"/docs/operations.md")
	for _, program := range units {
		u := readUnit(t, program)
		patience, err := time.ParseDuration(u.one(t, "Service.TimeoutStopSec"))
		if err != nil || patience <= 25*time.Second { // the delay of 5 s and the timeout of 20 s
			t.Errorf("%s is killed after %v (%v)", program, patience, err)
		}
		if status := u.one(t, "Service.RestartPreventExitStatus"); status != "2" {
			t.Errorf("%s: a wrong flag is status 2, and that of the unit %s", program, status)
		}
		for _, name := range []string{"Service.User", "Service.Group"} {
			if who := u.one(t, name); who != program || !strings.Contains(users, "\nu "+who+" ") {
				t.Errorf("%s is %s, and the users are\n%s", name, who, users)
			}
		}
		if !strings.Contains(page, "install -m 640 -g "+program+" "+program+".crt "+program+".key /etc/unlocker/\n") {
			t.Errorf("the handbook does not install the files of %s for its user", program)
		}
	}
	files, err := filepath.Glob(repository + "/deploy/systemd/*")
	if err != nil || len(files) != 7 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		if !strings.Contains(page, " deploy/systemd/"+filepath.Base(file)+" ") {
			t.Errorf("the handbook does not install %s", file)
		}
	}
}
