package main

import (
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// screen is where mutexdev writes. On a terminal its last line stays in sight, whatever is logged above it.
type screen struct {
	terminal bool

	mu   sync.Mutex
	out  io.Writer
	last string // empty = none
}

const eraseLine = "\r\x1b[K"

// screen writes to out. On a terminal, what all else logs to stderr goes there, too, until stop is called.
func (o *options) screen(out io.Writer) (s *screen, stop func(), err error) {
	s = &screen{out: out}
	stderr := os.Stderr
	if out != os.Stdout || !term.IsTerminal(int(os.Stdout.Fd())) || !term.IsTerminal(int(stderr.Fd())) {
		return s, func() {}, nil
	}
	s.terminal = true
	logged, pipe, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	if o.log.Format == "auto" { // which would not see a terminal behind the pipe
		o.log.Format = "console"
	}
	os.Stderr = pipe
	var copied sync.WaitGroup
	copied.Go(func() { _, _ = io.Copy(s, logged) })
	return s, func() {
		os.Stderr = stderr
		pipe.Close()
		copied.Wait()
		s.keep("")
	}, nil
}

// Write writes whole lines above the last one.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == "" {
		return s.out.Write(p)
	}
	if _, err := io.WriteString(s.out, eraseLine+string(p)+s.last); err != nil {
		return 0, err
	}
	return len(p), nil
}

// keep sets the last line of a terminal.
func (s *screen) keep(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.terminal {
		return
	}
	if s.last != "" {
		_, _ = io.WriteString(s.out, eraseLine)
	}
	s.last = line
	_, _ = io.WriteString(s.out, line)
}
