package docs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
		"mutex.AlertAfter(time.Minute)", "mutex.AlertAfter(4*time.Second)",
		"mutex.AutoUnlockAfter(3*time.Minute)", "mutex.AutoUnlockAfter(12*time.Second)",
		"sleep 60\n", "sleep 4\n",
	}
}

// Each command of the tutorial is run as it stands, in the terminal that the page names, and prints what the page
// shows. Only the ports differ, because those of the page may be taken, and time passes faster.
func TestTheTutorialRunsAsWritten(t *testing.T) {
	t.Parallel()
	proctest.ReadSources(t)
	home := t.TempDir()
	ports := freePorts(t, "127.0.0.1:2379", "127.0.0.1:10980", "127.0.0.1:8080")
	env := append(environment(t), "HOME="+home,
		"MUTEXDEV_ETCD_LISTEN_ADDRESS="+ports["127.0.0.1:2379"],
		"MUTEXDEV_UNLOCKER_LISTEN_ADDRESS="+ports["127.0.0.1:10980"],
		"MUTEXDEV_WEB_LISTEN_ADDRESS="+ports["127.0.0.1:8080"])
	local := func(text string) string {
		for page, here := range ports {
			text = strings.ReplaceAll(text, page, here)
		}
		return text
	}

	page := filepath.Join(top, "docs", "tutorial.md")
	all := blocks(t, page)
	hurry := strings.NewReplacer(hurried()...)
	for slow := range slices.Chunk(hurried(), 2) {
		if !slices.ContainsFunc(all, func(b block) bool { return strings.Contains(b.text, slow[0]) }) {
			t.Errorf("the page does not say %q", slow[0])
		}
	}
	first := open(t, env)
	second := open(t, env)
	ran := 0
	for i, b := range all {
		switch b.language {
		case "go":
			file, ok := strings.CutPrefix(b.note, "save as ~/")
			if !ok {
				t.Fatalf("tutorial.md:%d: the page does not say where to save this", b.line)
			}
			if err := os.WriteFile(filepath.Join(home, file), []byte(hurry.Replace(b.text)), 0o600); err != nil {
				t.Fatal(err)
			}
		case "sh":
			shown := ""
			if i+1 < len(all) && all[i+1].language == "text" {
				shown = local(all[i+1].text)
			}
			began := time.Now()
			terminal := first
			if b.note == "second terminal" {
				terminal = second
			}
			printed := terminal.run(t, local(hurry.Replace(b.text)), func(printed string) bool {
				return b.note == "keeps running" && matches(shown, printed)
			})
			if !matches(shown, printed) {
				t.Fatalf("tutorial.md:%d: the commands\n%s\nprint\n%s\nand the page shows\n%s", b.line, b.text, printed,
					shown)
			}
			t.Logf("tutorial.md:%d: %v", b.line, time.Since(began).Round(time.Millisecond))
			ran++
		case "text":
			if i == 0 || all[i-1].language != "sh" {
				t.Errorf("tutorial.md:%d: no command prints this", b.line)
			}
		default:
			t.Errorf("tutorial.md:%d: nobody runs a block of %q", b.line, b.language)
		}
	}
	if ran < 5 {
		t.Errorf("only %d blocks were run", ran)
	}
	if _, err := os.Stat(filepath.Join(home, "stuck-lock")); !os.IsNotExist(err) {
		t.Errorf("the page does not clean up: %v", err)
	}
	first.interrupt(t)
}

// matches reports whether a page shows what was printed. In the page, … stands for anything within a line, and on a
// line of its own for any number of lines. Blanks count as one, because the width of a column depends on what is in it.
func matches(shown, printed string) bool {
	var pattern strings.Builder
	for line := range strings.Lines(shown) {
		line = strings.Join(strings.Fields(line), " ")
		if line == "…" {
			pattern.WriteString(`(?:.*\n)*`)
			continue
		}
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + `\n`)
	}
	var got strings.Builder
	for line := range strings.Lines(printed) {
		got.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	return regexp.MustCompile(`\A` + pattern.String() + `\z`).MatchString(got.String())
}

func TestOutputIsComparedWithWhatThePageShows(t *testing.T) {
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
		if matches(c.shown, c.printed) != c.want {
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
	if err != nil {
		t.Fatal(err)
	}
	s := &terminal{shell: proctest.Start(t, shell), keys: keys}
	t.Cleanup(func() { _ = s.signal(syscall.SIGKILL) })
	return s
}

// signal sends a signal to everything that runs in the terminal.
func (s *terminal) signal(number syscall.Signal) error { return syscall.Kill(-s.shell.PID(), number) }

// run types the commands and returns what they print, when they have ended or enough is there.
func (s *terminal) run(t *testing.T, commands string, enough func(printed string) bool) string {
	t.Helper()
	before := len(s.shell.Output())
	s.lines++
	mark := fmt.Sprintf("commands %d ended", s.lines)
	if _, err := fmt.Fprintf(s.keys, "%s\necho '%s'\n", commands, mark); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(commandTimeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		printed, _, done := strings.Cut(s.shell.Output()[before:], mark)
		if done || enough(printed) {
			return printed
		}
	}
	t.Fatalf("not within %v:\n%s\nprinted so far:\n%s", commandTimeout, commands, s.shell.Output())
	return ""
}

// interrupt types Ctrl-C, which ends what runs in the terminal, and closes the terminal.
func (s *terminal) interrupt(t *testing.T) {
	t.Helper()
	if err := s.signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	// A shell that waits for commands ends with the signal, and its pipe with it.
	if err := s.keys.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	s.shell.Wait(t)
}

// freePorts is a free address on this machine for each address of the page.
func freePorts(t *testing.T, page ...string) map[string]string {
	t.Helper()
	free := map[string]string{}
	for _, address := range page {
		free[address] = proctest.FreeAddr(t)
	}
	return free
}

// environment is our own without the settings of etcd and our programs, and with Go's caches wherever HOME is.
func environment(t *testing.T) []string {
	t.Helper()
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "ETCDCTL_") && !strings.HasPrefix(v, "MUTEX") {
			env = append(env, v)
		}
	}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOENV", "GOFLAGS"} {
		value, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, name+"="+strings.TrimSpace(string(value)))
	}
	env[len(env)-1] += " -ldflags=-w" // linked in half the time
	return env
}
