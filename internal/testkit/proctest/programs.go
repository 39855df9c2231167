package proctest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Programs are programs of this repository, built for one run of the tests.
type Programs struct {
	Dir  string // of the programs and other files that live as long
	Root string // of the repository

	read sync.Once
}

// Build builds programs of the directory cmd by name. TestMain calls it, and Remove at the end.
func Build(names ...string) (*Programs, error) {
	root, err := findRoot()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "unlocker-test")
	if err != nil {
		return nil, err
	}
	p := &Programs{Dir: dir, Root: root}
	args := []string{"build", "-o", dir}
	for _, name := range names {
		args = append(args, "./cmd/"+name)
	}
	if err := p.Go(args...); err != nil {
		p.Remove()
		return nil, err
	}
	return p, nil
}

// Go runs the go command at the root of the repository.
func (p *Programs) Go(args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir = p.Root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", args[0], err, out)
	}
	return nil
}

// Remove removes the programs.
func (p *Programs) Remove() { os.RemoveAll(p.Dir) }

// Command returns a [Command] for one of the programs.
func (p *Programs) Command(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	p.read.Do(func() { ReadSources(t) })
	return Command(t, filepath.Join(p.Dir, name), args...)
}

// Command returns a command with a clean environment: PATH and an empty HOME.
func Command(t testing.TB, path string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	return cmd
}

// Self returns a command that runs this test binary again, with one more environment variable. TestMain must recognize
// the variable, call EndWithParent, and do something else than run the tests.
func Self(variable, value string) *exec.Cmd {
	path, err := os.Executable()
	cmd := exec.Command(path, "-test.run=^$") // or tests would run if TestMain ignored the variable
	cmd.Err = errors.Join(cmd.Err, err)
	cmd.Env = append(os.Environ(), variable+"="+value)
	return cmd
}

// EndWithParent ends this process, which Launch or Start started, when its parent is gone.
func EndWithParent() {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
}

// ReadSources makes go test run this test again when a program has changed. The test cache knows which files a test
// opened, but not what its child processes read.
func ReadSources(t testing.TB) {
	t.Helper()
	root, err := findRoot()
	for _, dir := range []string{"cmd", "internal", "pkg", "web"} {
		err = errors.Join(err, filepath.WalkDir(filepath.Join(root, dir),
			func(_ string, _ fs.DirEntry, err error) error { return err }))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// findRoot finds the root of the repository from the directory of the tested package.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for start := dir; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod in or above %s", start)
		}
	}
}
