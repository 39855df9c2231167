package demo

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

// Killed is the lock whose holder is killed, again and again, 15 s after it took it. The witness of this machine proves
// that, and the unlocker frees the lock after the grace of 10 s.
const Killed = "payments/settlement"

// settlements has a process of its own take the lock, and kills it while it holds it. The process of the other pod
// waits, and gets the lock long before its deadline.
func (p *pod) settlements(ctx context.Context) error {
	holder := p.Holder(ctx, p.host)
	in, err := holder.StdinPipe()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := holder.StdoutPipe()
	if err != nil {
		return err
	}
	if err := holder.Start(); err != nil {
		return err
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err == nil {
		p.rest(ctx, 15*time.Second)
	}
	if ctx.Err() != nil {
		in.Close() // it releases the lock
		return holder.Wait()
	}
	_ = holder.Process.Kill()
	return holder.Wait()
}

// Hold takes the lock [Killed], writes a line, and holds the lock until the input ends or the process is killed.
func Hold(ctx context.Context, etcd *clientv3.Client, host string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
		time.AfterFunc(releaseTime, func() { os.Exit(1) }) // mutexdev was killed, and its etcd with it
	}()
	locks, err := mutex.New(etcd, mutex.Options{Owner: "payments", Hostname: host})
	if err != nil {
		return err
	}
	defer locks.Close()
	return locks.Do(ctx, Killed, func(ctx context.Context) error {
		fmt.Fprintln(out, "held")
		<-ctx.Done()
		return context.Cause(ctx)
	}, mutex.Purpose("settlement of yesterday's card payments"), mutex.AlertAfter(5*time.Minute),
		mutex.AutoUnlockAfter(20*time.Minute))
}
