package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// tree is a mounted tree of cgroups, or a part of it.
type tree struct {
	dir  string // mount point
	root string // the group that is mounted there, as in /proc/self/cgroup
}

var errNone = errors.New("no cgroups of version 2 are mounted")

// trees finds the mounted trees.
func trees() ([]tree, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	all := mounted(string(text))
	if len(all) == 0 {
		return nil, errNone
	}
	return all, nil
}

// mounted reads the text of /proc/PID/mountinfo.
func mounted(mountinfo string) (all []tree) {
	for line := range strings.Lines(mountinfo) {
		before, after, _ := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if len(fields) >= 5 && strings.HasPrefix(after, "cgroup2 ") {
			all = append(all, tree{dir: unescape(fields[4]), root: unescape(fields[3])})
		}
	}
	return all
}

func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// own finds the group of this process and the tree that contains it.
func own() (tree, string, error) {
	all, err := trees()
	if err != nil {
		return tree{}, "", err
	}
	for _, t := range all {
		var dir string
		if dir, err = t.own(); err == nil {
			return t, dir, nil
		}
	}
	return tree{}, "", err
}

// own returns the directory of the group of this process.
func (t tree) own() (string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if !ok {
			continue
		}
		below, err := filepath.Rel(t.root, path)
		if err != nil || !filepath.IsLocal(below) {
			return "", fmt.Errorf("the cgroup %s of this process is outside the tree mounted at %s", path, t.dir)
		}
		return filepath.Join(t.dir, below), nil
	}
	return "", errors.New("this process is in no cgroup of version 2")
}

// root is the inode number of the root of the machine's tree. Roots of partial trees have others.
const root = 1

// whole returns an error if the tree is only a part of the machine's.
func (t tree) whole() error {
	var s unix.Stat_t
	if err := unix.Stat(t.dir, &s); err != nil {
		return fmt.Errorf("%s: %w", t.dir, err)
	}
	if s.Ino != root {
		return fmt.Errorf("%s shows only a part of the cgroups of this machine", t.dir)
	}
	return nil
}

// Find searches the machine's tree for the groups with these ids, and returns how many processes live in and below
// each. A group that is missing in the result is certainly gone; an error means that nothing is certain.
func Find(ids map[int64]bool) (map[int64]int, error) {
	all, err := trees()
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		if err = t.whole(); err == nil {
			return t.find(ids)
		}
	}
	return nil, err
}

func (t tree) find(ids map[int64]bool) (map[int64]int, error) {
	found := map[int64]int{}
	err := walk(t.dir, func(dir string, id int64) error {
		if !ids[id] {
			return nil
		}
		n, err := count(dir)
		if err == nil {
			found[id] = n
		}
		return err
	})
	return found, err
}

// walk calls f for the group in a directory and for all groups below it, except those removed meanwhile. It fails if a
// group is hidden, by an unreadable directory or a mount.
func walk(dir string, f func(dir string, id int64) error) error {
	file, err := os.Open(dir)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	var fsys unix.Statfs_t
	var s unix.Stat_t
	if err := errors.Join(unix.Fstatfs(int(file.Fd()), &fsys), unix.Fstat(int(file.Fd()), &s)); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if fsys.Type != unix.CGROUP2_SUPER_MAGIC {
		return fmt.Errorf("something is mounted over the cgroup %s", dir)
	}
	if err := f(dir, int64(s.Ino)); err != nil && !isGone(err) {
		return err
	}
	entries, err := file.ReadDir(-1)
	if err != nil && !isGone(err) {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if err := walk(filepath.Join(dir, e.Name()), f); err != nil {
			return err
		}
	}
	return nil
}

// isGone reports whether a group was removed: a file of it that is already open then returns ENODEV.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// count returns how many processes live in the group and below it. If the kernel reports some, it is at least one, even
// if none is visible: they may be in another pid namespace.
func count(dir string) (int, error) {
	events, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
	if err != nil {
		return 0, err
	}
	if strings.Contains(string(events), "populated 0\n") {
		return 0, nil
	}
	n := 0
	err = walk(dir, func(dir string, _ int64) error {
		procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		n += strings.Count(string(procs), "\n")
		return err
	})
	if err != nil || n == 0 {
		return 1, nil //nolint:nilerr // at least one process certainly lives there
	}
	return n, nil
}
