//go:build packages

// Package packages installs the packages on a clean Debian with a systemd of its own, and starts what is in them. Run
// it with `make packages-test`, as root.
package packages

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

const repository = "../.."

var (
	nfpm       = flag.String("nfpm", "", "the program that makes packages")
	goLicenses = flag.String("go-licenses", "", "the program that finds licences")
	tree       = flag.String("root", "", "archive of a clean root directory")
	etcdctl    = flag.String("etcdctl", "", "etcd's command")
	older      = &built{version: "v1.0.0"}
	newer      = &built{version: "v1.1.0"}
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "packages")
	if err == nil {
		defer os.RemoveAll(dir)
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// build makes the packages of both versions, of the same programs, and an etcd.
func build(dir string) error {
	programs := dir + "/programs"
	if err := command("make", "-s", "-C", repository, "programs", "VERSION="+newer.version,
		"INTO="+programs); err != nil {
		return err
	}
	arch, err := exec.Command("dpkg", "--print-architecture").Output()
	if err != nil {
		return fmt.Errorf("dpkg --print-architecture: %w", err)
	}
	for _, b := range []*built{older, newer} {
		b.dir = dir + "/" + b.version
		if err := command(repository+"/deploy/packages/build", *nfpm, *goLicenses, b.version,
			strings.TrimSpace(string(arch)),
			b.dir, programs); err != nil {
			return err
		}
	}
	return command("env", "CGO_ENABLED=0", "go", "build", "-C", repository, "-o", newer.dir+"/etcd",
		"./test/etcdserver")
}

// command runs what may take long.
func command(args ...string) error {
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%q: %w\n%s", args, err, out)
	}
	return nil
}

// built are the packages of a version.
type built struct{ version, dir string }

// files returns the packages of a format, deb or rpm, by name.
func (b *built) files(t *testing.T, format string) map[string]string {
	t.Helper()
	found, err := filepath.Glob(b.dir + "/*." + format)
	if err != nil || len(found) != 3 {
		t.Fatalf("%s has %q, %v", b.dir, found, err)
	}
	all := map[string]string{}
	for _, file := range found {
		name, _, _ := strings.Cut(filepath.Base(file), map[string]string{"deb": "_", "rpm": "-"}[format])
		all[name] = file
	}
	return all
}

// unpack makes a clean root directory, with the packages of both versions in /packages.
func unpack(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	must(t, exec.Command("tar", "-xf", *tree, "-C", root))
	must(t, exec.Command("mkdir", root+"/packages"))
	must(t, exec.Command("cp", "-R", older.dir, root+"/packages/old"))
	must(t, exec.Command("cp", "-R", newer.dir, root+"/packages/new"))
	must(t, exec.Command("install", "-m", "755", *etcdctl, root+"/usr/local/bin/etcdctl"))
	must(t, exec.Command("install", "-m", "755", newer.dir+"/etcd", root+"/usr/local/bin/etcd"))
	return root
}

// machine is a container with its own systemd, network, processes and users.
type machine struct {
	root string
	init int // the process id of its systemd
}

// boot starts a machine.
func boot(t *testing.T) *machine {
	t.Helper()
	m := &machine{root: unpack(t)}
	args := []string{"--quiet", "--register=no", "--private-network", "--link-journal=no", "--console=pipe",
		"--directory=" + m.root, "--boot"}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		args = append(args, "--keep-unit") // nobody here gives it a unit
	}
	nspawn := proctest.Start(t, exec.Command("systemd-nspawn", args...))
	t.Cleanup(func() {
		if m.init != 0 {
			_ = syscall.Kill(m.init, syscall.SIGKILL) // and so everything in it
			<-nspawn.Done()
		}
	})
	proctest.Eventually(t, "systemd has started", func() error {
		if !nspawn.Running() {
			t.Fatalf("systemd-nspawn ended:\n%s", nspawn.Output())
		}
		if m.init == 0 {
			m.init = child(nspawn.PID())
		}
		if m.init == 0 {
			return errors.New("there is no process in it")
		}
		out, _ := m.command("systemctl is-system-running").CombinedOutput()
		if state := strings.TrimSpace(string(out)); state != "running" && state != "degraded" {
			return fmt.Errorf("it is %q", state)
		}
		return nil
	})
	return m
}

// child finds the systemd that a systemd-nspawn started: the child whose process namespace is another.
func child(parent int) int {
	ours, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return 0
	}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	for _, task := range tasks {
		children, _ := os.ReadFile(task)
		for _, field := range strings.Fields(string(children)) {
			pid, _ := strconv.Atoi(field)
			if theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid)); err == nil && theirs != ours {
				return pid
			}
		}
	}
	return 0
}

// command is a script for the machine's bash, which ends at the first failure.
func (m *machine) command(script string) *exec.Cmd {
	return exec.Command("nsenter", "--target="+strconv.Itoa(m.init), "--mount", "--uts", "--ipc", "--net", "--pid",
		"--cgroup", "--root", "--wd", "env", "-i", "HOME=/root", "LANG=C.UTF-8", "TERM=dumb",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "bash", "-euo", "pipefail", "-c", script)
}

// run runs a script as root and returns what it prints.
func (m *machine) run(t *testing.T, script string) string {
	t.Helper()
	out, err := m.command(script).CombinedOutput() // as long as it takes
	if err != nil {
		t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return string(out)
}

// prints expects the output of a script, as soon as it prints it.
func (m *machine) prints(t *testing.T, script, want string) {
	t.Helper()
	proctest.Eventually(t, script, func() error {
		cmd := m.command(script)
		out, _ := cmd.CombinedOutput()
		if !strings.Contains(string(out), want) {
			return fmt.Errorf("no %q in (%v)\n%s", want, cmd.ProcessState, out)
		}
		return nil
	})
}

// etcd starts an etcd in the machine.
func (m *machine) etcd(t *testing.T, flags string) {
	t.Helper()
	server := proctest.Start(t, m.command("exec etcd -listen 127.0.0.1:2379 "+flags))
	server.Prints(t, "127.0.0.1:2379")
}

func must(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd, err, out, errors.String())
	}
	return string(out)
}
