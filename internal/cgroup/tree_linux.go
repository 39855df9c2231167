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

// tree is a mounted cgroup2 file system, which may show only a part of the machine's groups.
type tree struct {
	dir  string // mount point
	root string // the group that is mounted there, as in /proc/self/cgroup
}

var errNotMounted = errors.New("no cgroup2 file system is mounted")

// trees finds the mounted trees.
func trees() ([]tree, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	all := parseMounts(string(text))
	if len(all) == 0 {
		return nil, errNotMounted
	}
	return all, nil
}

// parseMounts returns the trees in the text of /proc/PID/mountinfo.
func parseMounts(mountinfo string) (all []tree) {
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

// findOwn returns the tree that contains the group of this process, and the directory of that group.
func findOwn() (tree, string, error) {
	all, err := trees()
	if err != nil {
		return tree{}, "", err
	}
	for _, t := range all {
		var dir string
		if dir, err = t.ownDir(); err == nil {
			return t, dir, nil
		}
	}
	return tree{}, "", err
}

// ownDir returns the directory of the group of this process in the tree.
func (t tree) ownDir() (string, error) {
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
	return "", errors.New("this process is in no cgroup2 group")
}

// rootInode is the inode number of the root of the machine's tree. The root of a part of it has another.
const rootInode = 1

// checkComplete returns an error if the tree shows only a part of the machine's groups.
func (t tree) checkComplete() error {
	var s unix.Stat_t
	if err := unix.Stat(t.dir, &s); err != nil {
		return fmt.Errorf("%s: %w", t.dir, err)
	}
	if s.Ino != rootInode {
		return fmt.Errorf("%s shows only a part of the cgroups of this machine", t.dir)
	}
	return nil
}

// Find searches all groups of the machine for those with these ids, and returns how many processes each has, including
// the groups below it. A group that is missing in the result does not exist, for certain; after an error nothing is
// certain.
func Find(ids map[int64]bool) (map[int64]int, error) {
	all, err := trees()
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		if err = t.checkComplete(); err == nil {
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
		n, err := countProcesses(dir)
		if err == nil {
			found[id] = n
		}
		return err
	})
	return found, err
}

// walk calls f for the group in a directory and all groups below it, except those removed meanwhile. It fails if an
// unreadable directory or a mount hides a group.
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

// isGone reports whether the error means that the group was removed. Files of it that were open then return ENODEV.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// countProcesses returns how many processes the group has, including the groups below it. If the kernel reports that it
// has some, the result is at least one, although they may be invisible in this pid namespace.
func countProcesses(dir string) (int, error) {
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
		return 1, nil //nolint:nilerr // the kernel reports that there is at least one
	}
	return n, nil
}
