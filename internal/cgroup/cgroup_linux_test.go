package cgroup

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

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
	if _, err := elsewhere.find(map[int64]bool{7: true}); err == nil {
		t.Error("find without a cgroup tree returned no error")
	}
	if err := walk(elsewhere.dir, func(string, int64) error { return nil }); err == nil ||
		!strings.Contains(err.Error(), "mounted over") {
		t.Errorf("a directory that is not a cgroup: %v", err)
	}
	if err := walk(filepath.Join(elsewhere.dir, "gone"), nil); err != nil {
		t.Errorf("a cgroup that was removed meanwhile: %v", err)
	}
}

func TestOwnGroupIsWithinTheMount(t *testing.T) {
	if _, err := (tree{dir: "/cg", root: "/somewhere/else"}).ownDir(); err == nil {
		t.Error("the group of this process is taken for one below another's")
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

// On a machine where no cgroup can be created, there is none to look for.
func TestGroupIsFoundWhileItExists(t *testing.T) {
	g, err := New("a/b")
	if err != nil {
		t.Logf("no cgroups here: %v", err)
		return
	}
	defer g.Close()
	find := func() (living int, found bool) {
		t.Helper()
		all, err := Find(map[int64]bool{g.ID: true, 1 << 60: true})
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
		cmd := exec.Command("sleep", "600")
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Pdeathsig: syscall.SIGKILL}
		proctest.Must(t, cmd.Start())
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

func must(f *os.File, err error) *os.File {
	if err != nil {
		panic(err)
	}
	return f
}
