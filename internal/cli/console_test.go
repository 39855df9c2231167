package cli_test

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/creack/pty"
	"github.com/rogpeppe/go-internal/testscript"
)

// console ID COMMAND... runs a program in the background on its own terminal, whose screen is the file ID.out.
func (w *world) console(ts *testscript.TestScript, _ bool, args []string) {
	file, terminal, err := pty.Open()
	ts.Check(err)
	defer terminal.Close()
	path, err := exec.LookPath(args[1])
	ts.Check(err)
	out, err := os.Create(ts.MkAbs(args[0] + ".out"))
	ts.Check(err)
	_, err = os.Create(ts.MkAbs(args[0] + ".err"))
	ts.Check(err)
	c := exec.Command(path, args[2:]...)
	c.Dir = ts.MkAbs(".")
	c.Env = append(w.env.Vars, "TERM=xterm", "PS1=shell> ")
	c.Stdin = terminal
	c.Stdout = terminal
	c.Stderr = terminal
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	ts.Check(c.Start())
	s := &screen{file: file, dark: make(chan struct{})}
	w.running[args[0]], w.screens[args[0]] = c, s
	go func() {
		defer close(s.dark)
		defer out.Close()
		_, _ = io.Copy(out, file) // ends with an error when the last program has left the terminal
	}()
	ts.Defer(func() { file.Close() })
}

// screen is the user's end of a terminal.
type screen struct {
	file *os.File
	dark chan struct{} // closed when all that was written is in the file
}

// keys ID TEXT types on a console; ^C and ^Z are control characters, and \n is return.
func (w *world) keys(ts *testscript.TestScript, _ bool, args []string) {
	text := strings.NewReplacer("^C", "\x03", "^Z", "\x1a", `\n`, "\n").Replace(args[1])
	_, err := w.screens[args[0]].file.WriteString(text)
	ts.Check(err)
}
