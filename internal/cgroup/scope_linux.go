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

// scopeTimeout bounds the creation of a scope by systemd.
const scopeTimeout = 2 * time.Second

// property is a property of a unit, for StartTransientUnit.
type property struct {
	Name  string
	Value dbus.Variant
}

// auxiliaryUnit is an auxiliary unit; we pass none.
type auxiliaryUnit struct {
	Name       string
	Properties []property
}

// enterScope has systemd create a scope with this name and move this process to it, and returns the scope's directory.
// This process may create groups below it.
func (t tree) enterScope(name, lock string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scopeTimeout)
	defer cancel()
	conn, err := dialSystemd(ctx)
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
		"org.freedesktop.systemd1.Manager.StartTransientUnit", 0, name, "fail", properties, []auxiliaryUnit{})
	if call.Err != nil {
		return "", fmt.Errorf("systemd created no scope: %w", call.Err)
	}
	return t.awaitMove(ctx, name)
}

// dialSystemd connects to the systemd of the system, or else of the user, over its private socket, which needs no
// message bus.
func dialSystemd(ctx context.Context) (*dbus.Conn, error) {
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

// awaitMove waits until this process is in the scope, because systemd answers before it is, and returns its directory.
func (t tree) awaitMove(ctx context.Context, scope string) (string, error) {
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		if dir, err := t.ownDir(); err == nil && path.Base(dir) == scope {
			return dir, nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return "", errors.New("systemd created a scope, but did not move this process to it")
		}
	}
}
