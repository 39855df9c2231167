package cli

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/user"
	"strings"
)

// readLine reads a line that somebody types, until a signal comes.
func readLine(ctx context.Context, in *os.File) (string, error) {
	type answer struct {
		line string
		err  error
	}
	answers := make(chan answer, 1)
	go func() { // ends with the process at the latest: a read from a terminal cannot be cancelled
		line, err := bufio.NewReader(in).ReadString('\n')
		answers <- answer{strings.TrimRight(line, "\r\n"), err}
	}()
	select {
	case a := <-answers:
		if a.err != nil {
			return "", errors.New("nothing was done: nothing was typed")
		}
		return a.line, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// operator is the user and the machine that run this.
func operator() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return userName() + "@" + host
}

func userName() string {
	u, err := user.Current()
	if err != nil {
		return "unknown"
	}
	return u.Username
}
