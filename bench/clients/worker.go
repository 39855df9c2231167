package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/bench/servers"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// worker takes and releases a lock.
type worker interface {
	// take takes and releases n locks, one after the other, and returns how long each took.
	take(n int) ([]time.Duration, error)
	end() error
}

// begin starts a worker for each language. The scripts are beside the source of this program.
func begin(etcd, sources string) (all []*contestant, err error) {
	workers := filepath.Join(filepath.Dir(sources), "bench", "clients", "workers")
	endpoint := "http://" + etcd
	ours, err := newLibrary(etcd)
	if err != nil {
		return nil, err
	}
	all = []*contestant{{name: "Go (gRPC)", worker: ours}}
	for _, s := range []struct {
		name, variable string
		args           []string
	}{
		{"TypeScript", "", []string{"node", workers + "/bench.cjs", sources + "/typescript/dist/index.js",
			endpoint}},
		{"Python", "PYTHONPATH=" + sources + "/python/src", []string{"python3", workers + "/bench.py", endpoint}},
		{"Ruby", "", []string{"ruby", "-I", sources + "/ruby/lib", workers + "/bench.rb", endpoint}},
	} {
		script, err := startScript(s.variable, s.args)
		if err != nil {
			return nil, err
		}
		all = append(all, &contestant{name: s.name, worker: script})
	}
	return all, nil
}

// library is the library for Go.
type library struct {
	etcd  *clientv3.Client
	locks *mutex.Client
}

func newLibrary(addr string) (*library, error) {
	etcd, err := servers.EtcdClient(addr)
	if err != nil {
		return nil, err
	}
	locks, err := mutex.New(etcd, mutex.Options{Owner: "bench"})
	return &library{etcd, locks}, err
}

func (l *library) take(n int) (took []time.Duration, err error) {
	for range n {
		began := time.Now()
		err := l.locks.Do(context.Background(), "bench/go", func(context.Context) error { return nil })
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}

func (l *library) end() error { return errors.Join(l.locks.Close(), l.etcd.Close()) }

// script is a process that takes as many locks as a line of its input says, and answers with a line.
type script struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startScript(variable string, args []string) (*script, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), variable)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &script{cmd, in, bufio.NewReader(out)}, cmd.Start()
}

func (s *script) take(n int) ([]time.Duration, error) {
	if _, err := fmt.Fprintln(s.in, n); err != nil {
		return nil, err
	}
	line, err := s.out.ReadString('\n')
	if err != nil {
		return nil, err
	}
	return parse(line, n)
}

func (s *script) end() error { return errors.Join(s.in.Close(), s.cmd.Wait()) }

// parse reads n times in microseconds.
func parse(line string, n int) (took []time.Duration, err error) {
	words := strings.Fields(line)
	if len(words) != n {
		return nil, fmt.Errorf("%d times in %q, want %d", len(words), line, n)
	}
	for _, word := range words {
		µs, err := strconv.ParseInt(word, 10, 64)
		if err != nil || µs <= 0 {
			return nil, fmt.Errorf("%q is no time in microseconds", word)
		}
		took = append(took, time.Duration(µs)*time.Microsecond)
	}
	return took, nil
}
