package docs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// commandTimeout is for the slowest command of the tutorial, which builds the programs, on a busy machine.
const commandTimeout = 5 * time.Minute

// hurried makes the minutes of the tutorial, which are for somebody who reads, seconds.
func hurried() []string {
	return []string{
		"mutex.AlertAfter(time.Minute)", "mutex.AlertAfter(2500*time.Millisecond)",
		"mutex.AutoUnlockAfter(3*time.Minute)", "mutex.AutoUnlockAfter(6*time.Second)",
		"sleep 60\n", "while ./mutexctl check > all-is-well; do sleep 0.1; done\n",
	}
}

// Each command of the tutorial is run as it stands, in the terminal that the page names, and prints what the page
// shows. Only the ports differ, because those of the page may be taken, and time passes faster.
func TestTutorialRunsAsWritten(t *testing.T) {
	t.Parallel()
	proctest.ReadSources(t)
	all := blocks(t, filepath.Join(top, "docs", "tutorial.md"))
	for slow := range slices.Chunk(hurried(), 2) {
		if !slices.ContainsFunc(all, func(b block) bool { return strings.Contains(b.text, slow[0]) }) {
			t.Errorf("the page does not say %q", slow[0])
		}
	}
	home := t.TempDir()
	job := filepath.Join(home, "stuck-lock")
	if err := os.CopyFS(job, os.DirFS(programs.Dir)); err != nil { // linked as below: go build sees that they are new
		t.Fatal(err)
	}
	env := append(environment(t), "HOME="+home)
	changes := hurried()
	for variable, address := range map[string]string{
		"MUTEXDEV_ETCD_LISTEN_ADDRESS":     "127.0.0.1:2379",
		"MUTEXDEV_UNLOCKER_LISTEN_ADDRESS": "127.0.0.1:10980",
		"MUTEXDEV_WEB_LISTEN_ADDRESS":      "127.0.0.1:8080",
	} {
		here := proctest.FreeAddr(t)
		env = append(env, variable+"="+here)
		changes = append(changes, address, here)
	}
	change := strings.NewReplacer(changes...).Replace
	first := open(t, env)
	second := open(t, env)
	ran := 0
	for i, b := range all {
		at := fmt.Sprintf("tutorial.md:%d", b.line)
		switch b.language {
		case "go":
			file, ok := strings.CutPrefix(b.note, "save as ~/")
			if !ok {
				t.Fatalf("%s: the page does not say where to save this", at)
			}
			proctest.Must(t, os.WriteFile(filepath.Join(home, file), []byte(change(b.text)), 0o600))
		case "sh":
			terminal := first
			if b.note == "second terminal" {
				terminal = second
			}
			terminal.shows(t, at, change(b.text), change(shown(all, i)), b.note == "keeps running")
			ran++
		case "text":
			if i == 0 || all[i-1].language != "sh" {
				t.Errorf("%s: no command prints this", at)
			}
		default:
			t.Errorf("%s: nobody runs a block of %q", at, b.language)
		}
	}
	if ran < 5 {
		t.Errorf("only %d blocks were run", ran)
	}
	if _, err := os.Stat(job); !os.IsNotExist(err) {
		t.Errorf("the page does not clean up: %v", err)
	}
	first.interrupt(t)
}

// shown is what the page shows below a block.
func shown(all []block, i int) string {
	if i+1 < len(all) && all[i+1].language == "text" {
		return all[i+1].text
	}
	return ""
}

func TestOutputIsComparedWithThePage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shown, printed string
		want           bool
	}{
		{"", "", true},
		{"", "an error\n", false},
		{"token …\n", "token 17\n", true},
		{"token …\n", "token 17\nmore\n", false},
		{"STATE  LOCK\nheld   a\n", "STATE LOCK\nheld  a\n", true},
		{"a\n…\nb\n", "a\nb\n", true},
		{"a\n…\nb\n", "a\n1\n2\nb\n", true},
		{"a\n…\nb\n", "a\n1\n2\n", false},
		{"a.c\n", "abc\n", false},
	} {
		if proctest.Shows(c.shown, c.printed) != c.want {
			t.Errorf("%q shown, %q printed: want %v", c.shown, c.printed, c.want)
		}
	}
}

// terminal is a shell that somebody types into.
type terminal struct {
	shell *proctest.Process
	keys  io.WriteCloser
	lines int // marks so far
}

func open(t *testing.T, env []string) *terminal {
	t.Helper()
	shell := exec.Command("bash")
	shell.Dir = top
	shell.Env = env
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	keys, err := shell.StdinPipe()
	proctest.Must(t, err)
	s := &terminal{shell: proctest.Start(t, shell), keys: keys}
	t.Cleanup(func() { _ = s.signal(syscall.SIGKILL) })
	return s
}

// signal sends a signal to everything that runs in the terminal.
func (s *terminal) signal(number syscall.Signal) error { return syscall.Kill(-s.shell.PID(), number) }

// shows types the commands of a page and expects what it shows: when they have ended or, if they keep running, as soon
// as it is there.
func (s *terminal) shows(t *testing.T, at, commands, shown string, keepRunning bool) {
	t.Helper()
	before := len(s.shell.Output())
	s.lines++
	mark := fmt.Sprintf("commands %d ended", s.lines)
	_, err := fmt.Fprintf(s.keys, "%s\necho '%s'\n", commands, mark)
	proctest.Must(t, err)
	began := time.Now()
	for end := began.Add(commandTimeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		printed, _, done := strings.Cut(s.shell.Output()[before:], mark)
		if !done && !keepRunning {
			continue
		}
		if proctest.Shows(shown, printed) {
			t.Logf("%s: %v", at, time.Since(began).Round(time.Millisecond))
			return
		}
		if done {
			t.Fatalf("%s: the commands\n%s\nprint\n%s\nand the page shows\n%s", at, commands, printed, shown)
		}
	}
	t.Fatalf("%s: not within %v:\n%s\nprinted so far:\n%s", at, commandTimeout, commands, s.shell.Output())
}

// interrupt types Ctrl-C, which ends what runs in the terminal, and closes the terminal.
func (s *terminal) interrupt(t *testing.T) {
	t.Helper()
	proctest.Must(t, s.signal(syscall.SIGINT))
	// A shell that waits for commands ends with the signal, and its pipe with it.
	if err := s.keys.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	s.shell.Wait(t)
}

// environment is our own without the settings of etcd and our programs, and with Go's caches wherever HOME is.
func environment(t *testing.T) []string {
	t.Helper()
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "ETCDCTL_") || strings.HasPrefix(v, "MUTEX")
	})
	names := []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOENV", "GOFLAGS", "CGO_ENABLED"}
	values, err := exec.CommandContext(t.Context(), "go", append([]string{"env"}, names...)...).Output()
	proctest.Must(t, err)
	for i, value := range strings.Split(strings.TrimSuffix(string(values), "\n"), "\n") {
		env = append(env, names[i]+"="+value)
	}
	env[len(env)-1] += " " + proctest.LinkerFlags
	return env
}
