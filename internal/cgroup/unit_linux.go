package cgroup

import (
	"context"
	"errors"
	"strings"

	"github.com/godbus/dbus/v5"
)

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

// boundProperties are the properties of a scope whose processes end whenever they would have ended in the unit.
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
