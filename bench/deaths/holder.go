package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/bench/contest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// holderVariable is the environment variable that makes this program a holder, and says of what.
const holderVariable = "BENCH_HOLDER"

// What a holder says on its standard output.
const (
	saysHeld = "held"
	saysLost = "lost"
)

type holderConfig struct {
	Client client
	Lock   string
}

// holderMain runs a holder, in a process that startHolder started, and does not return there.
func holderMain() {
	config, isHolder := os.LookupEnv(holderVariable)
	if !isHolder {
		return
	}
	fmt.Fprintln(os.Stderr, hold(config))
	os.Exit(1)
}

// hold takes a lock, keeps it until it is lost, and then waits to be killed. It returns only when it could not take it.
func hold(config string) error {
	var c holderConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	locks, err := c.Client.connect()
	if err != nil {
		return err
	}
	l, err := locks.lock(context.Background(), c.Lock)
	if err != nil {
		return err
	}
	fmt.Println(saysHeld)
	go func() {
		for range time.Tick(life / 3) {
			ctx, cancel := context.WithTimeout(context.Background(), life/3)
			_ = l.keep(ctx) // fails while cut off; the next attempt may not
			cancel()
		}
	}()
	for !l.isLost() {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println(saysLost)
	select {} // its end is not measured
}

// startHolder starts a process and returns once that holds the lock.
func startHolder(ctx context.Context, c client, lock string, env ...string) (*proctest.Process, error) {
	config, err := json.Marshal(holderConfig{Client: c, Lock: lock})
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), holderVariable+"="+string(config))
	cmd.Env = append(cmd.Env, env...)
	p, err := proctest.Launch(cmd)
	if err != nil {
		return nil, err
	}
	for !says(p, saysHeld) {
		if err := contest.Wait(ctx, 10*time.Millisecond); err != nil {
			p.Kill()
			return nil, err
		}
		if !p.Running() {
			return nil, fmt.Errorf("the holder of %s ended: %s", lock, p.Output())
		}
	}
	return p, nil
}

func says(p *proctest.Process, word string) bool {
	for line := range strings.Lines(p.Output()) {
		if strings.TrimSpace(line) == word {
			return true
		}
	}
	return false
}
