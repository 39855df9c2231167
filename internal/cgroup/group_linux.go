package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// Group is a group for a command and everything that it starts.
type Group struct {
	ID  int64 // 0 if a private directory hides the group from witnesses
	dir *os.File
}

// New creates a group for the command that this process runs under a lock, below that of this process. If systemd runs
// and has not delegated that, it first moves this process to a new scope.
func New(lock string) (*Group, error) {
	path, err := readPath("self")
	if err != nil {
		return nil, err
	}
	t, dir, err := findGroup(path)
	if err != nil {
		return nil, err
	}
	name := unitName(lock)
	var noScope error
	_, noSystemd := os.Stat("/run/systemd/system") // as in sd_booted(3)
	if !isDelegated(dir) && noSystemd == nil {
		var scope string
		if scope, noScope = t.enterScope(dir, name+".scope", lock); noScope == nil {
			dir = scope
			name = "command"
		}
	}
	g, err := makeBelow(dir, name)
	switch {
	case err != nil && noScope != nil:
		return nil, fmt.Errorf("%w; and %w", noScope, err)
	case err == nil && !t.isPublic(dir):
		g.ID = 0
	}
	return g, err
}

// prefix is how the names of our groups begin.
const prefix = "mutexctl-"

// maxName is how many bytes of a lock's name the name of its group has, which may have 255.
const maxName = 100

// unitName returns a unique name for a group, which is also valid as the name of a systemd unit.
func unitName(lock string) string {
	clean := strings.Map(func(r rune) rune {
		if r < 128 && (r == '_' || r == '.' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z') {
			return r
		}
		return '_'
	}, lock)
	return prefix + clean[:min(len(clean), maxName)] + "-" + uuid.NewString()[:8]
}

// isDelegated reports whether this process may create groups below the group: systemd has delegated it (Delegate=yes),
// or it is one of ours. The latter keeps a command that takes another lock in its group, with which it ends.
func isDelegated(dir string) bool {
	if strings.Contains(dir, "/"+prefix) {
		return true
	}
	value := make([]byte, 8)
	for _, name := range []string{"trusted.delegate", "user.delegate"} {
		if n, err := unix.Getxattr(dir, name, value); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

// makeBelow creates a group below another, and sweeps what killed processes left there.
func makeBelow(own, name string) (*Group, error) {
	sweep(own)
	path := filepath.Join(own, name)
	for {
		if err := os.Mkdir(path, 0o700); err != nil {
			return nil, err
		}
		g, err := openNew(path)
		if err == nil {
			return g, nil
		}
		if removed := os.Remove(path); !isGone(removed) {
			return nil, err
		} // else another process has swept it
	}
}

// sweep removes our empty groups in a directory that nobody uses: a killed mutexctl leaves one if its guard did not run
// yet. A group is in use while its directory is locked, which no process survives.
func sweep(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), prefix) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if group, err := os.Open(path); err == nil {
			if unix.Flock(int(group.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
				_ = os.Remove(path) // fails if the group has processes
			}
			group.Close()
		}
	}
}

// openNew opens a new group, and locks its directory until this process and its guard have closed it.
func openNew(path string) (g *Group, err error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			dir.Close()
		}
	}()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return nil, err
	}
	// Witnesses run as other users, so the umask must not lock them out.
	if err := os.Chmod(path, 0o755); err != nil { //nolint:gosec // as all cgroups are
		return nil, err
	}
	kind, err := os.ReadFile(filepath.Join(path, "cgroup.type"))
	if err != nil {
		return nil, err
	}
	if word := strings.TrimSpace(string(kind)); word != "domain" {
		return nil, fmt.Errorf("the cgroup %s cannot have processes: its type is %q", path, word)
	}
	kill := filepath.Join(path, "cgroup.kill")
	if err := unix.Access(kill, unix.W_OK); err != nil {
		return nil, fmt.Errorf("%s: %w", kill, err) // Linux has it since 5.14
	}
	id, err := readID(dir)
	return &Group{ID: id, dir: dir}, err
}

func (g *Group) Dir() *os.File { return g.dir }

// FromDir returns the group whose directory is open as dir.
func FromDir(dir *os.File) *Group { return &Group{dir: dir} }

// file returns the path of a file of the group, by the open descriptor instead of the group's name.
func (g *Group) file(name string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", g.dir.Fd(), name) }

// Evict moves a process from the group to the group above.
func (g *Group) Evict(pid int) error {
	return os.WriteFile(g.file("../cgroup.procs"), fmt.Append(nil, pid), 0)
}

// CountProcesses returns how many processes the group has, including the groups below it; 0 if it was removed.
func (g *Group) CountProcesses() (int, error) {
	n, err := countProcesses(g.file("."))
	if isGone(err) {
		_, err = g.dir.Stat() // fails if the directory was closed, which also has no files
	}
	return n, err
}

// Kill kills all processes in the group, without waiting for their end.
func (g *Group) Kill() error {
	err := os.WriteFile(g.file("cgroup.kill"), []byte("1"), 0)
	if isGone(err) {
		return nil
	}
	return err
}

// KillAll kills all processes in the group, and returns how many there were. It blocks until they have ended, or until
// done is closed, but at least for a moment.
func (g *Group) KillAll(done <-chan struct{}) (killed int, err error) {
	for pause := time.Millisecond; ; pause = min(2*pause, time.Second) {
		n, err := g.CountProcesses()
		if n == 0 || err != nil {
			return killed, err
		}
		if pause > time.Millisecond { // the first time, it may be a process that is just ending
			killed = cmp.Or(killed, n)
			if err := g.Kill(); err != nil {
				return killed, err
			}
		}
		if pause < 100*time.Millisecond { // killed processes need a moment
			time.Sleep(pause)
			continue
		}
		select {
		case <-done:
			return killed, errors.New("the processes do not end")
		case <-time.After(pause):
		}
	}
}

// Remove removes the group, and those that the command created below it. It fails while they have processes.
func (g *Group) Remove() error { return remove(g.path()) }

// path returns the path of the group; for a removed group, that of a file that does not exist.
func (g *Group) path() string {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", g.dir.Fd()))
	if err != nil {
		return ""
	}
	return path
}

func remove(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := remove(filepath.Join(path, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.Remove(path)
}

func (g *Group) Close() { g.dir.Close() }
