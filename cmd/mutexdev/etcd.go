package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"github.com/clustermutex/unlocker/internal/testkit/etcdembed"
)

// etcd is the embedded member and its data directory.
type etcd struct {
	*etcdembed.Server
	dir  string
	temp bool // dir is removed at the end
	lock *fileutil.LockedFile
}

func (o *options) startEtcd(ctx context.Context) (*etcd, string, error) {
	e, endpoint, err := o.tryEtcd(ctx)
	for try := 0; errors.Is(err, syscall.EADDRINUSE) && try < 3; try++ { // taken by somebody after it was found free
		e, endpoint, err = o.tryEtcd(ctx)
	}
	return e, endpoint, err
}

func (o *options) tryEtcd(ctx context.Context) (*etcd, string, error) {
	endpoint, err := o.etcd.free()
	if err != nil {
		return nil, "", err
	}
	peer, err := (&address{what: "etcd's peer port", value: "127.0.0.1:0"}).free()
	if err != nil {
		return nil, "", err
	}
	e := &etcd{dir: o.dataDir, temp: o.dataDir == ""}
	if err := e.open(); err != nil {
		return nil, "", err
	}
	// Data that is thrown away need not be safe on disk.
	e.Server, err = etcdembed.Start(ctx, etcdembed.Config{Dir: e.dir, Client: endpoint, Peer: peer, Throwaway: e.temp,
		Gateway: true}) // for clients in other languages
	if err != nil {
		e.clean()
		return nil, "", err
	}
	return e, endpoint, nil
}

// open creates the directory. It refuses one that is in use: etcd would silently wait for it.
func (e *etcd) open() (err error) {
	if e.temp {
		e.dir, err = os.MkdirTemp("", "mutexdev-")
		return err
	}
	if err := os.MkdirAll(e.dir, 0o700); err != nil {
		return err
	}
	e.lock, err = fileutil.TryLockFile(filepath.Join(e.dir, "mutexdev.lock"), os.O_CREATE|os.O_WRONLY, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return fmt.Errorf("another mutexdev uses the data in %s", e.dir)
	}
	return err
}

// run waits until ctx ends; it fails if etcd ends by itself.
func (e *etcd) run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-e.Done():
		return errors.New("etcd ended by itself")
	}
}

func (e *etcd) stop() {
	e.Stop()
	e.clean()
}

func (e *etcd) clean() {
	if e.temp {
		os.RemoveAll(e.dir)
	}
	if e.lock != nil {
		e.lock.Close()
	}
}
