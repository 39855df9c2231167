package cgroup

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

func TestMountedFindsTheTree(t *testing.T) {
	const v1 = "31 24 0:27 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu\n"
	for about, c := range map[string]struct {
		mounts string
		want   []tree
	}{
		"alone": {"29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", []tree{{"/sys/fs/cgroup", "/"}}},
		"beside version 1": {v1 + "35 30 0:31 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n",
			[]tree{{"/sys/fs/cgroup/unified", "/"}}},
		"a part of it": {"29 23 0:26 /kube/pod /cg\\040x ro - cgroup2 cgroup2 ro\n",
			[]tree{{"/cg x", "/kube/pod"}}},
		"version 1 alone":     {v1, nil},
		"nothing that counts": {"\n - cgroup2\n29 23 - cgroup2 \n", nil},
	} {
		if got := parseMounts(c.mounts); !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v", about, got)
		}
	}
}

func TestPartialTreeProvesNothing(t *testing.T) {
	elsewhere := tree{dir: t.TempDir(), root: "/"}
	if err := elsewhere.checkComplete(); err == nil {
		t.Error("a plain directory passes as the whole tree")
	}
	if _, _, err := elsewhere.find(map[int64]bool{7: true}); err == nil {
		t.Error("find without a cgroup tree returned no error")
	}
	if err := walk(elsewhere.dir, func(_ string, _ int64, err error) error { return err }); err == nil ||
		!strings.Contains(err.Error(), "mounted over") {
		t.Errorf("a directory that is not a cgroup: %v", err)
	}
	if isPrivate("/", fs.ErrPermission) {
		t.Error("a directory that others may read, but this process may not, is taken for a private one")
	}
	if err := walk(filepath.Join(elsewhere.dir, "gone"), nil); err != nil {
		t.Errorf("a cgroup that was removed meanwhile: %v", err)
	}
}

func TestOnlyGroupsWithinTheMountHaveADirectory(t *testing.T) {
	for _, c := range []struct{ root, path, want string }{
		{"/", "/a/b", "/cg/a/b"}, {"/a", "/a/b", "/cg/b"}, {"/a/b", "/a/b", "/cg"}, {"/other", "/a/b", ""},
		// In a cgroup namespace of its own:
		{"/", "/../a", ""}, {"/../..", "/", ""}, {"/../..", "/../../a", "/cg/a"},
	} {
		if dir, err := (tree{dir: "/cg", root: c.root}).dirOf(c.path); dir != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s where %s is mounted: %q, %v", c.path, c.root, dir, err)
		}
	}
}

func TestScopeEndsWithWhatItsProcessesCameFrom(t *testing.T) {
	kill := unit{"KillSignal": dbus.MakeVariant(int32(2)), "ControlGroup": dbus.MakeVariant("/system.slice/a.service")}
	for _, c := range []struct{ id, mode, want string }{
		{"a.service", "control-group", "BindsTo KillSignal"},
		{"a.service", "mixed", "BindsTo KillSignal"},
		{"cron.service", "process", ""}, // its processes outlive it
		{"session-1.scope", "control-group", "PartOf KillSignal"},
		{"-.slice", "", ""},
	} {
		u := maps.Clone(kill)
		u["Id"] = dbus.MakeVariant(c.id)
		u["KillMode"] = dbus.MakeVariant(c.mode)
		var names []string
		for _, p := range u.boundProperties() {
			names = append(names, p.Name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s with KillMode=%s: %s", c.id, c.mode, got)
		}
	}
	if unit(nil).boundProperties() != nil || !unit(nil).contains("/a") {
		t.Error("a process in no unit is bound to one")
	}
	for path, want := range map[string]bool{"/system.slice/a.service": true, "/system.slice/a.service/b": true,
		"/":                         false,
		"/system.slice/a.service.d": false} {
		if kill.contains(path) != want {
			t.Errorf("%s belongs to the service: %v", path, !want)
		}
	}
	const dir = "/user.slice/user-7.slice/user@7.service/app.slice/a.scope"
	if !isBelowSystemdOf(7, dir) || isBelowSystemdOf(77, dir) ||
		isBelowSystemdOf(7, "/user.slice/user-7.slice/session-1.scope") {
		t.Error("a user's systemd is confused with another, or with a session")
	}
}

func TestFailedGroupCreationLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	if g, err := makeBelow(dir, "g"); err == nil { // no cgroup.type
		t.Errorf("a plain directory became group %d", g.ID)
	}
	proctest.Must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	if _, err := makeBelow(filepath.Join(dir, "file"), "g"); err == nil {
		t.Error("a group was made below a file")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "g*")); left != nil {
		t.Errorf("leftovers: %v", left)
	}
}

func TestUnitNamesAreValidForSystemdAndTheTree(t *testing.T) {
	for _, lock := range []string{"nightly/report", "../..", strings.Repeat("é", 200), "a\nb \\x2d", "-", ""} {
		name, other := unitName(lock), unitName(lock)
		if !regexp.MustCompile(`^mutexctl-[A-Za-z0-9._-]{0,150}$`).MatchString(name) {
			t.Errorf("%q becomes %q", lock, name)
		}
		if name == other {
			t.Errorf("two groups are named %s", name)
		}
	}
}

// newGroup creates a group. On a machine where no cgroup can be created, there is none, and nothing to test.
func newGroup(t *testing.T) *Group {
	t.Helper()
	g, err := New("a/b")
	if err != nil {
		t.Logf("no cgroups here: %v", err)
		return nil
	}
	t.Cleanup(func() {
		_ = g.Remove()
		g.Close()
	})
	return g
}

// startIn starts a process in the group in a directory.
func startIn(t *testing.T, dir *os.File) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Pdeathsig: syscall.SIGKILL}
	proctest.Must(t, cmd.Start())
	return cmd
}

func TestGroupIsFoundWhileItExists(t *testing.T) {
	g := newGroup(t)
	if g == nil {
		return
	}
	find := func() (living int, found bool) {
		t.Helper()
		all, _, err := Find(map[int64]bool{g.ID: true, 1 << 60: true})
		if err != nil || len(all) > 1 {
			t.Fatalf("found %v, %v", all, err)
		}
		living, found = all[g.ID]
		return living, found
	}
	if n, found := find(); n != 0 || !found {
		t.Errorf("an empty group: %d, %v", n, found)
	}
	below := filepath.Join(g.path(), "below")
	proctest.Must(t, os.Mkdir(below, 0o755))
	for _, dir := range []*os.File{g.Dir(), must(os.Open(below))} {
		cmd := startIn(t, dir)
		defer cmd.Wait()
	}
	if n, _ := find(); n != 2 {
		t.Errorf("%d processes live in and below the group, want 2", n)
	}
	if err := g.Remove(); err == nil {
		t.Error("a group with processes was removed")
	}
	over := make(chan struct{}) // the lock was lost before, as in the grace period
	close(over)
	if n, err := g.KillAll(over); n != 2 || err != nil {
		t.Errorf("cleared of %d, %v", n, err)
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	if _, found := find(); found {
		t.Error("a removed group was found")
	}
	if n, err := g.KillAll(nil); n != 0 || err != nil {
		t.Errorf("clearing a removed group: %d processes, %v", n, err)
	}
}

func TestPrivateGroupHidesNoOther(t *testing.T) {
	g := newGroup(t)
	if g == nil {
		return
	}
	own := filepath.Dir(g.path())
	private := filepath.Join(own, "private")
	proctest.Must(t, os.Mkdir(private, 0))
	defer os.Remove(private)
	path, err := readPath("self")
	proctest.Must(t, err)
	in, _, err := findGroup(path)
	proctest.Must(t, err)
	if !in.isPublic(g.path()) || in.isPublic(private) {
		t.Error("a private group is taken for one that witnesses can read, or the other way round")
	}
	holder := startIn(t, must(os.Open(own)))
	defer holder.Wait()
	defer holder.Process.Kill()
	command := startIn(t, g.Dir())

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	proctest.Must(t, unix.Setfsuid(65534)) // like a witness, which is not root
	defer unix.Setfsuid(os.Getuid())
	found, hidden, err := Find(map[int64]bool{g.ID: true, 1 << 60: true})
	if found[g.ID] != 1 || len(found) != 1 || !slices.Contains(hidden, private) || err != nil {
		t.Errorf("found %v, not in %v, %v", found, hidden, err)
	}
	seen, err := OpenOf(int64(holder.Process.Pid), g.ID)
	proctest.Must(t, err)
	if other, err := OpenOf(int64(holder.Process.Pid), 1<<60); err == nil {
		t.Errorf("the group %d is taken for another", other.ID)
	}
	if n, err := seen.CountProcesses(); n != 1 || err != nil {
		t.Errorf("%d processes, %v", n, err)
	}
	_ = command.Process.Kill()
	_ = command.Wait()
	if n, err := seen.CountProcesses(); n != 0 || err != nil {
		t.Errorf("%d processes after the end of the only one, %v", n, err)
	}
	proctest.Must(t, unix.Setfsuid(os.Getuid()))
	proctest.Must(t, g.Remove())
	if n, err := seen.CountProcesses(); n != 0 || err != nil {
		t.Errorf("%d processes in a removed group, %v", n, err)
	}
	seen.Close()
	if n, err := seen.CountProcesses(); err == nil {
		t.Errorf("%d processes in a group that is closed", n)
	}
}

func TestUnusedGroupIsSweptByTheNext(t *testing.T) {
	g := newGroup(t)
	if g == nil {
		return
	}
	own := filepath.Dir(g.path())
	left := filepath.Join(own, prefix+"left")
	other := filepath.Join(own, "other")
	proctest.Must(t, os.Mkdir(left, 0o755))
	proctest.Must(t, os.Mkdir(other, 0o755))
	defer os.Remove(other)
	used, err := makeBelow(own, prefix+"used")
	proctest.Must(t, err)
	defer used.Remove()
	next, err := makeBelow(own, prefix+"next")
	proctest.Must(t, err)
	defer next.Remove()
	for dir, want := range map[string]bool{left: false, other: true, used.path(): true, next.path(): true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func must(f *os.File, err error) *os.File {
	if err != nil {
		panic(err)
	}
	return f
}
