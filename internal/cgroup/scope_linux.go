package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/clustermutex/unlocker/internal/text"
)

// systemdRuns reports whether systemd runs this machine, as sd_booted(3) does.
func systemdRuns() bool {
	info, err := os.Stat("/run/systemd/system")
	return err == nil && info.IsDir()
}

// scopeTimeout is how long systemd may take.
const scopeTimeout = 2 * time.Second

// property is a property of a unit, for StartTransientUnit.
type property struct {
	Name  string
	Value dbus.Variant
}

// auxiliary is an auxiliary unit; we pass none.
type auxiliary struct {
	Name       string
	Properties []property
}

// enterScope makes systemd move this process into a scope of this name, below which it may make groups, and returns the
// directory of the scope.
func (t tree) enterScope(name, lock string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scopeTimeout)
	defer cancel()
	conn, err := manager(ctx)
	if err != nil {
		return "", fmt.Errorf("systemd created no scope: %w", err)
	}
	defer conn.Close()
	properties := []property{
		{"Description", dbus.MakeVariant("mutexctl run " + text.Visible(lock))},
		{"Delegate", dbus.MakeVariant(true)},
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")},
		{"PIDs", dbus.MakeVariant([]uint32{0})}, // the caller
	}
	call := conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").CallWithContext(ctx,
		"org.freedesktop.systemd1.Manager.StartTransientUnit", 0, name, "fail", properties, []auxiliary{})
	if call.Err != nil {
		return "", fmt.Errorf("systemd created no scope: %w", call.Err)
	}
	return t.moved(ctx, name)
}

// manager connects to the system's systemd, or to the user's, by the private socket that needs no message bus.
func manager(ctx context.Context) (*dbus.Conn, error) {
	uid := strconv.Itoa(os.Getuid())
	socket := "/run/systemd/private"
	if uid != "0" {
		socket = "/run/user/" + uid + "/systemd/private"
	}
	conn, err := dbus.Dial("unix:path="+socket, dbus.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(uid)}); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// moved waits until this process is in the scope, because systemd answers earlier.
func (t tree) moved(ctx context.Context, scope string) (string, error) {
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		if dir, err := t.own(); err == nil && path.Base(dir) == scope {
			return dir, nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return "", errors.New("systemd created a scope, but did not move this process there")
		}
	}
}
