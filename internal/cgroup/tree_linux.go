package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tree is a mounted cgroup2 file system, which may show only a part of the machine's groups.
type tree struct {
	dir  string // mount point
	root string // the group that is mounted there, as in /proc/self/cgroup
}

func trees() ([]tree, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	all := parseMounts(string(text))
	if len(all) == 0 {
		return nil, errors.New("no cgroup2 file system is mounted")
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

// findGroup returns the tree that contains the group with this path, and the directory of the group.
func findGroup(path string) (tree, string, error) {
	all, err := trees()
	if err != nil {
		return tree{}, "", err
	}
	for _, t := range all {
		var dir string
		if dir, err = t.dirOf(path); err == nil {
			return t, dir, nil
		}
	}
	return tree{}, "", err
}

// readPath returns the path of the group of a process, or of this one for "self".
func readPath(pid string) (string, error) {
	text, err := os.ReadFile("/proc/" + pid + "/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return path, nil
		}
	}
	return "", fmt.Errorf("process %s is in no cgroup2 group", pid)
}

// dirOf returns the directory of the group with this path in the tree. The paths of groups outside of the cgroup
// namespace begin with /.. and are compared as relative ones, because a rooted path would lose that.
func (t tree) dirOf(path string) (string, error) {
	below, err := filepath.Rel("."+t.root, "."+path)
	if err != nil || !filepath.IsLocal(below) {
		return "", fmt.Errorf("the cgroup %s is outside the tree mounted at %s", path, t.dir)
	}
	return filepath.Join(t.dir, below), nil
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
		return fmt.Errorf("%s shows only a part of the cgroups of this machine: "+
			"run the witness in the cgroup namespace of the machine", t.dir)
	}
	return nil
}

// OpenOf opens the group with this id if it is that of a process, or directly below.
func OpenOf(pid, id int64) (*Group, error) {
	path, err := readPath(strconv.FormatInt(pid, 10))
	if err != nil {
		return nil, err
	}
	_, own, err := findGroup(path)
	if err != nil {
		return nil, err
	}
	_, names, err := readGroup(own)
	if err != nil {
		return nil, err
	}
	for _, name := range append(names, ".") {
		dir, err := os.Open(filepath.Join(own, name))
		if err != nil {
			continue // another's, or gone
		}
		if found, err := readID(dir); err == nil && found == id {
			return &Group{ID: id, dir: dir}, nil
		}
		dir.Close()
	}
	return nil, fmt.Errorf("the cgroup %d is not below %s", id, own)
}

// Find searches all groups of the machine for those with these ids, and returns how many processes each has, including
// the groups below it, and the private directories that it could not search. A group that is neither in the result nor
// in a private directory does not exist, for certain; after an error nothing is certain.
func Find(ids map[int64]bool) (living map[int64]int, private []string, err error) {
	all, err := trees()
	if err != nil {
		return nil, nil, err
	}
	for _, t := range all {
		if err = t.checkComplete(); err == nil {
			return t.find(ids)
		}
	}
	return nil, nil, err
}

func (t tree) find(ids map[int64]bool) (living map[int64]int, private []string, err error) {
	living = map[int64]int{}
	err = walk(t.dir, func(dir string, id int64, err error) error {
		if isPrivate(dir, err) {
			private = append(private, dir)
			return nil
		}
		if err != nil || !ids[id] {
			return err
		}
		n, err := countProcesses(dir)
		if err == nil {
			living[id] = n
		}
		return err
	})
	return living, private, err
}

// isPrivate reports whether the error means that a directory is closed to other users, or nested too deep for all.
func isPrivate(dir string, err error) bool {
	if errors.Is(err, fs.ErrPermission) {
		info, failed := os.Stat(dir)
		return failed == nil && !isOpen(info) // else something denies this process what others may read
	}
	return errors.Is(err, unix.ENAMETOOLONG)
}

// isPublic reports whether all users may read the directory of a group in the tree, and all directories above.
func (t tree) isPublic(dir string) bool {
	for ; dir != t.dir; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err != nil || !isOpen(info) {
			return false
		}
	}
	return true
}

// isOpen reports whether all users may list a directory and enter it.
func isOpen(info os.FileInfo) bool { return info.Mode()&0o005 == 0o005 }

// walk calls f for the group in a directory and all groups below it, except those removed meanwhile, with the error
// that the directory could not be read. It returns the first error of f.
func walk(dir string, f func(dir string, id int64, err error) error) error {
	id, names, err := readGroup(dir)
	if !isGone(err) {
		err = f(dir, id, err)
	}
	if isGone(err) {
		return nil
	}
	for _, name := range names {
		if failed := walk(filepath.Join(dir, name), f); err == nil {
			err = failed
		}
	}
	return err
}

// readGroup returns the id of the group in a directory, and the names of the groups directly below it.
func readGroup(path string) (id int64, below []string, err error) {
	dir, err := os.Open(path)
	if err != nil {
		return 0, nil, err
	}
	defer dir.Close()
	if id, err = readID(dir); err != nil {
		return 0, nil, err
	}
	entries, err := dir.ReadDir(-1)
	for _, e := range entries {
		if e.IsDir() {
			below = append(below, e.Name())
		}
	}
	return id, below, err
}

// readID returns the id of the group in an open directory.
func readID(dir *os.File) (int64, error) {
	var fsys unix.Statfs_t
	var s unix.Stat_t
	if err := errors.Join(unix.Fstatfs(int(dir.Fd()), &fsys), unix.Fstat(int(dir.Fd()), &s)); err != nil {
		return 0, fmt.Errorf("%s: %w", dir.Name(), err)
	}
	if fsys.Type != unix.CGROUP2_SUPER_MAGIC {
		return 0, fmt.Errorf("something is mounted over the cgroup %s", dir.Name())
	}
	return int64(s.Ino), nil
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
	_ = walk(dir, func(dir string, _ int64, _ error) error { // those that it cannot read are missing in the count
		procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		n += strings.Count(string(procs), "\n")
		return err
	})
	return max(n, 1), nil
}
