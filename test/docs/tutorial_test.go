package docs

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// commandTimeout is for the slowest command of the tutorial, which builds the programs, on a busy machine.
const commandTimeout = 5 * time.Minute

// Each command of the tutorial is run as it stands, in the terminal that the page names, and prints what the page
// shows. Only the ports differ, because those of the page may be taken.
func TestTheTutorialRunsAsWritten(t *testing.T) {
	rememberSources(t)
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
			if err := os.WriteFile(filepath.Join(home, file), []byte(b.text), 0o600); err != nil {
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
			printed := terminal.run(t, local(b.text), func(printed string) bool {
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
	shell *exec.Cmd
	keys  io.WriteCloser
	ended chan error

	mu      sync.Mutex
	printed bytes.Buffer
	lines   int // marks so far
}

func open(t *testing.T, env []string) *terminal {
	t.Helper()
	s := &terminal{shell: exec.Command("bash"), ended: make(chan error, 1)}
	s.shell.Dir = top
	s.shell.Env = env
	s.shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.shell.Stdout = s
	s.shell.Stderr = s
	keys, err := s.shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.keys = keys
	if err := s.shell.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.ended <- s.shell.Wait() }()
	t.Cleanup(func() { _ = syscall.Kill(-s.shell.Process.Pid, syscall.SIGKILL) })
	return s
}

// Write takes what the terminal prints.
func (s *terminal) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.printed.Write(p)
}

func (s *terminal) screen() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.printed.String()
}

// run types the commands and returns what they print, when they have ended or enough is there.
func (s *terminal) run(t *testing.T, commands string, enough func(printed string) bool) string {
	t.Helper()
	s.mu.Lock()
	s.printed.Reset()
	s.mu.Unlock()
	s.lines++
	mark := fmt.Sprintf("commands %d ended", s.lines)
	if _, err := fmt.Fprintf(s.keys, "%s\necho '%s'\n", commands, mark); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(commandTimeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		printed, _, done := strings.Cut(s.screen(), mark)
		if done || enough(printed) {
			return printed
		}
	}
	t.Fatalf("not within %v:\n%s\nprinted so far:\n%s", commandTimeout, commands, s.screen())
	return ""
}

// interrupt is Ctrl-C, which ends what runs in the terminal, and then the terminal is closed.
func (s *terminal) interrupt(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(-s.shell.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := s.keys.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-s.ended:
	case <-time.After(time.Minute):
		t.Errorf("Ctrl-C did not end it; printed:\n%s", s.screen())
	}
}

// freePorts is a free address on this machine for each address of the page.
func freePorts(t *testing.T, page ...string) map[string]string {
	t.Helper()
	free := map[string]string{}
	for _, address := range page {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		free[address] = l.Addr().String()
	}
	return free
}

// environment is this one without settings of etcd and of our programs, and with the caches of Go wherever HOME is.
func environment(t *testing.T) []string {
	t.Helper()
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "ETCDCTL_") && !strings.HasPrefix(v, "MUTEX") {
			env = append(env, v)
		}
	}
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOENV"} {
		value, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, name+"="+strings.TrimSpace(string(value)))
	}
	return env
}

// rememberSources makes go test run the tutorial again when a program changed: go test remembers which directories a
// test opened, but not what a child process read.
func rememberSources(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"cmd", "internal", "pkg", "web"} {
		err := filepath.WalkDir(filepath.Join(top, dir), func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			t.Fatal(err)
		}
	}
}
