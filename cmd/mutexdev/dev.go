package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/cmd/internal/mutexdash"
	"github.com/clustermutex/unlocker/cmd/internal/unlocker"
	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/testkit/etcdembed"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// run starts everything, prints where it is, and stops it in reverse order.
func (o *options) run(ctx context.Context, out io.Writer) error {
	if o.speed < 0.1 || o.speed > 50 {
		return daemon.Usage(fmt.Errorf("--speed is %v: it must be between 0.1 and 50", o.speed))
	}
	log := daemon.Logger(*o.log, os.Stderr)
	server, dir, err := o.startEtcd(ctx)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	defer server.Stop()
	group := daemon.Group{Log: log, Timeout: 5 * time.Second}
	group.Add("etcd", func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-server.Done():
			return errors.New("etcd ended by itself")
		}
	})
	if err := o.addPrograms(&group); err != nil {
		return err
	}
	if !o.noDemo {
		etcd, err := etcdconn.New(settings(o.etcd.value), log)
		if err != nil {
			return err
		}
		defer etcd.Close()
		program, err := os.Executable()
		if err != nil {
			return err
		}
		demo := demoOptions{Etcd: etcd, Speed: o.speed, Log: log.Level(zerolog.ErrorLevel)}
		if canWitness() {
			demo.Holder = func(host string) *exec.Cmd {
				return exec.Command(program, holderName, o.etcd.value, host) //nolint:gosec,noctx // told when to end
			}
		}
		group.Add("demo", func(ctx context.Context) error { return runDemo(ctx, demo) })
	}
	group.Add("guide", func(ctx context.Context) error {
		if o.awaitUnlocker(ctx) {
			fmt.Fprint(out, o.guide())
		}
		<-ctx.Done()
		return nil
	})
	return group.Run(ctx)
}

// addPrograms adds the unlocker and the dashboard as in production: the same commands, with flags. Frames of backtraces
// are linked to their code if this program was built of them.
func (o *options) addPrograms(group *daemon.Group) error {
	for _, a := range []*address{o.unlocker, o.web} {
		var err error
		if a.value, err = a.free(); err != nil {
			return err
		}
	}
	shared := []string{"--etcd.endpoints=" + o.etcd.value, "--log.level=" + o.log.Level, "--log.format=" + o.log.Format,
		"--web.shutdown-delay=0s"}
	add := func(name string, command func() *cobra.Command, args ...string) {
		group.Add(name, func(ctx context.Context) error {
			return flags.Execute(ctx, flags.WithoutEnvironment(command()), slices.Concat(shared, args))
		})
	}
	p := staleness.DefaultPolicy()
	paced := func(d time.Duration) string { return time.Duration(float64(d) / o.speed).String() }
	add("unlocker", unlocker.Command, "--policy=auto-unlock", "--metrics.lock-series=all",
		"--web.listen-address="+o.unlocker.value, "--dashboard.url="+o.page(),
		"--sweep.clock-skew="+paced(p.ClockSkew), "--sweep.min-warning="+paced(p.MinWarning),
		"--sweep.abandoned=unlock", "--sweep.abandoned-grace="+paced(p.AbandonedGrace))
	add("mutexdash", mutexdash.Command, "--web.source-link="+checkout()+"/="+repository+"{file}#L{line}",
		"--web.environment=mutexdev", "--web.listen-address="+o.web.value, "--web.ops-address=127.0.0.1:0")
	if canWitness() {
		add("witness", unlocker.Command, "witness", "--log.level=error", "--web.listen-address=127.0.0.1:0")
	}
	return nil
}

func canWitness() bool { return runtime.GOOS == "linux" }

// awaitUnlocker waits until the dashboard knows the unlocker: before that, it says that none is running. It reports
// false if ctx ends first.
func (o *options) awaitUnlocker(ctx context.Context) bool {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for ctx.Err() == nil {
		if o.unlockerIsShown(ctx, client) {
			return true
		}
		time.Sleep(50 * time.Millisecond)
	}
	return false
}

func (o *options) unlockerIsShown(ctx context.Context, client *http.Client) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, o.page()+"api/v1/status", nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	var status struct {
		Data struct{ Unlockers []struct{} }
	}
	return json.NewDecoder(response.Body).Decode(&status) == nil && len(status.Data.Unlockers) > 0
}

func settings(endpoint string) etcdconn.Settings {
	s := etcdconn.Defaults()
	s.Endpoints = []string{endpoint}
	return s
}

// startEtcd starts an etcd whose data is in a temporary directory.
func (o *options) startEtcd(ctx context.Context) (server *etcdembed.Server, dir string, err error) {
	for range 4 { // another program may take a free address first
		if server, dir, err = o.tryEtcd(ctx); !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return server, dir, err
}

func (o *options) tryEtcd(ctx context.Context) (server *etcdembed.Server, dir string, err error) {
	endpoint, err := o.etcd.free()
	if err != nil {
		return nil, "", err
	}
	peer, err := (&address{what: "etcd's peer port", value: "127.0.0.1:0"}).free()
	if err != nil {
		return nil, "", err
	}
	if dir, err = os.MkdirTemp("", "mutexdev-"); err != nil {
		return nil, "", err
	}
	server, err = etcdembed.Start(ctx, etcdembed.Config{Dir: dir, Client: endpoint, Peer: peer, Throwaway: true,
		Gateway: true}) // for clients in other languages
	if err != nil {
		os.RemoveAll(dir)
		return nil, "", err
	}
	o.etcd.value = endpoint
	return server, dir, nil
}

const repository = "https://github.com/clustermutex/unlocker/blob/main/"

// checkout returns the directory in which this program was built: the compiler wrote it into the backtraces.
func checkout() string {
	_, file, _, _ := runtime.Caller(0)
	return strings.TrimSuffix(file, "/cmd/mutexdev/dev.go")
}
