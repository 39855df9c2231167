package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/clustermutex/unlocker/internal/text"
)

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

// enterScope has systemd create a scope with this name and move this process to it from the group dir, and returns the
// scope's directory. This process may create groups below it. The scope ends with the unit that the process comes from.
func (t tree) enterScope(dir, name, lock string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scopeTimeout)
	defer cancel()
	if err := checkUsable(dir); err != nil {
		return "", fmt.Errorf("no scope: %w", err)
	}
	if err := startScope(ctx, dir, name, lock); err != nil {
		return "", fmt.Errorf("systemd created no scope: %w", err)
	}
	return t.awaitMove(ctx, name)
}

// checkUsable returns an error if this process could not create groups in the tree of dir.
func checkUsable(dir string) error {
	var fsys unix.Statfs_t
	if err := unix.Statfs(dir, &fsys); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	if fsys.Flags&unix.ST_RDONLY != 0 {
		return fmt.Errorf("%s is read-only", dir)
	}
	_, err := os.Stat(filepath.Join(dir, "cgroup.kill")) // Linux has it since 5.14
	return err
}

func startScope(ctx context.Context, dir, name, lock string) error {
	conn, err := dialSystemd(ctx, dir)
	if err != nil {
		return err
	}
	defer conn.Close()
	own, err := findUnit(ctx, conn)
	if err != nil {
		return err
	}
	if path, err := readPath("self"); err != nil || !own.contains(path) {
		return errors.Join(errors.New("it sees other cgroups than this process"), err)
	}
	properties := append(own.boundProperties(),
		property{"Description", dbus.MakeVariant("mutexctl run " + text.Visible(lock))},
		property{"Delegate", dbus.MakeVariant(true)},
		property{"CollectMode", dbus.MakeVariant("inactive-or-failed")},
		property{"PIDs", dbus.MakeVariant([]uint32{0})}, // the caller
	)
	return conn.Object(systemdName, systemdPath).CallWithContext(ctx, systemdName+".Manager.StartTransientUnit", 0,
		name, "fail", properties, []auxiliaryUnit{}).Err
}

// dialSystemd connects to a systemd that does not end before the processes of the group dir would: that of the user if
// the group is below it, else that of the system for root, else that of the user if it stays after the last logout.
func dialSystemd(ctx context.Context, dir string) (*dbus.Conn, error) {
	uid := os.Getuid()
	if !isBelowSystemdOf(uid, dir) {
		if uid == 0 {
			return dialSocket(ctx, "/run/systemd/private")
		}
		if err := checkUserStays(ctx, uid); err != nil {
			return nil, err
		}
	}
	return dialSocket(ctx, fmt.Sprintf("/run/user/%d/systemd/private", uid))
}

// isBelowSystemdOf reports whether the group dir is below that of the user's systemd.
func isBelowSystemdOf(uid int, dir string) bool {
	return strings.Contains(dir, fmt.Sprintf("/user@%d.service/", uid))
}

// checkUserStays returns an error if the user's systemd ends with the last logout, or if the unit of the system that
// this process is in would not end what that systemd starts.
func checkUserStays(ctx context.Context, uid int) error {
	bus, err := dbus.ConnectSystemBus(dbus.WithContext(ctx))
	if err != nil {
		return err
	}
	defer bus.Close()
	const login = "org.freedesktop.login1"
	var user dbus.ObjectPath
	err = bus.Object(login, "/org/freedesktop/login1").
		CallWithContext(ctx, login+".Manager.GetUser", 0, uint32(uid)).Store(&user)
	if err != nil {
		return err
	}
	var lingers bool
	if err := bus.Object(login, user).StoreProperty(login+".User.Linger", &lingers); err != nil {
		return err
	}
	if !lingers {
		return errors.New("that of the user ends with the last logout, without loginctl enable-linger")
	}
	own, err := findUnit(ctx, bus)
	if err == nil && own.endsProcesses() {
		return fmt.Errorf("that of the user does not end with %s", own.text("Id"))
	}
	return err
}

// firstLength is more than systemd reads together with the end of the login. It answers a shorter first message only
// once another one arrives.
const firstLength = 1024

// dialSocket connects to a systemd over its private socket, which needs no message bus.
func dialSocket(ctx context.Context, socket string) (*dbus.Conn, error) {
	conn, err := dbus.Dial("unix:path="+socket, dbus.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err != nil {
		conn.Close()
		return nil, err
	}
	_ = conn.Object(systemdName, systemdPath).
		// only its length counts
		CallWithContext(ctx, "org.freedesktop.DBus.Peer.Ping", 0, strings.Repeat(" ", firstLength)).Err
	return conn, nil
}

// awaitMove waits until this process is in the scope, because systemd answers before it is, and returns its directory.
func (t tree) awaitMove(ctx context.Context, scope string) (string, error) {
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		if own, err := readPath("self"); err == nil && path.Base(own) == scope {
			return t.dirOf(own)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return "", errors.New("systemd created a scope, but did not move this process to it")
		}
	}
}

const (
	systemdName = "org.freedesktop.systemd1"
	systemdPath = "/org/freedesktop/systemd1"
)

// unit is the properties of a unit of systemd. A nil unit is none.
type unit map[string]dbus.Variant

// findUnit returns the unit that this process is in, of the systemd behind the connection.
func findUnit(ctx context.Context, conn *dbus.Conn) (u unit, err error) {
	const caller = uint32(0)
	var path dbus.ObjectPath
	err = conn.Object(systemdName, systemdPath).
		CallWithContext(ctx, systemdName+".Manager.GetUnitByPID", 0, caller).Store(&path)
	var refused dbus.Error
	if errors.As(err, &refused) && refused.Name == systemdName+".NoUnitForPID" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	err = conn.Object(systemdName, path).
		CallWithContext(ctx, "org.freedesktop.DBus.Properties.GetAll", 0, "").Store(&u)
	return u, err
}

func (u unit) text(property string) string {
	s, _ := u[property].Value().(string)
	return s
}

func (u unit) isScope() bool { return strings.HasSuffix(u.text("Id"), ".scope") }

// endsProcesses reports whether all processes of the unit end with it. Those of a scope do only if it is stopped.
func (u unit) endsProcesses() bool {
	mode := u.text("KillMode")
	return !u.isScope() && (mode == "control-group" || mode == "mixed")
}

// contains reports whether the group with this path, as in /proc/self/cgroup, is that of the unit or below it. In a
// cgroup namespace of its own, a process sees other paths than systemd.
func (u unit) contains(path string) bool {
	return u == nil || strings.HasPrefix(path+"/", strings.TrimSuffix(u.text("ControlGroup"), "/")+"/")
}

// boundProperties returns the properties of a scope whose processes end whenever they would have ended in the unit.
func (u unit) boundProperties() (all []property) {
	switch id := dbus.MakeVariant([]string{u.text("Id")}); {
	case u.endsProcesses():
		all = append(all, property{"BindsTo", id})
	case u.isScope():
		all = append(all, property{"PartOf", id}) // a scope also ends when all of its processes have left it
	default:
		return nil
	}
	for _, name := range []string{"KillSignal", "SendSIGHUP", "SendSIGKILL", "TimeoutStopUSec"} {
		if value, ok := u[name]; ok {
			all = append(all, property{name, value})
		}
	}
	return all
}
