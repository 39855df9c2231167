package cli

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/user"
	"strings"
)

// readLine reads one line from the terminal; a signal ends it.
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

// operator names the user of this process, as user@host.
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
