// Package host is the witness that runs on a machine. It follows the locks in etcd, watches the processes of its
// machine that hold locks, and writes a proof to etcd as soon as the kernel reports that one has ended
// (docs/protocol/witnesses.md).
//
// In doubt it writes nothing. It declares a process dead only if it watched it end, or if no process with its boot id,
// pid namespace, process id and start time exists.
package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2/maybe"

	"github.com/clustermutex/unlocker/internal/witness/holderproc"
)

// initialPIDNamespace is the inode of a machine's initial pid namespace, which contains all others.
const initialPIDNamespace = 4026531836

// Machine identifies the machine of a witness.
type Machine struct {
	BootID    string
	Hostname  string
	Namespace int64    // the pid namespace of the witness
	Earlier   []string // boot ids of this machine before the current one, as far as a witness recorded them
}

// SeesAll reports whether the witness sees the processes of all pid namespaces of its machine.
func (m Machine) SeesAll() bool { return m.Namespace == initialPIDNamespace }

// ReadMachine identifies this machine from /proc. The error is a sentence that says why a witness cannot see its
// processes.
func ReadMachine() (Machine, error) { return readMachine(proc{"/proc"}, os.Getpid()) }

func readMachine(p proc, pid int) (Machine, error) {
	boot, err := os.ReadFile(p.path("sys", "kernel", "random", "boot_id"))
	if err != nil {
		return Machine{}, fmt.Errorf("cannot read the boot id of this machine: %w", err)
	}
	status, err := os.ReadFile(p.path("self", "status"))
	if err != nil {
		return Machine{}, err
	}
	if pids := holderproc.ParseNSpid(string(status)); len(pids) != 1 || pids[0] != int64(pid) {
		return Machine{}, errors.New("/proc belongs to another pid namespace than the witness: mount it anew, or run " +
			"the witness in the namespace of the machine")
	}
	if link, err := os.Readlink(p.path("self", "ns", "time")); err == nil && link != "time:[4026531834]" {
		return Machine{}, errors.New("the witness runs in a time namespace of its own, where processes seem to have " +
			"begun at other times: run it in that of the machine")
	}
	link, err := os.Readlink(p.path("self", "ns", "pid"))
	if err != nil {
		return Machine{}, fmt.Errorf("cannot read the pid namespace of the witness: %w", err)
	}
	inode, ok := holderproc.ParseNamespace(link)
	if !ok {
		return Machine{}, fmt.Errorf("the pid namespace of the witness is %q, which is no number", link)
	}
	if err := p.checkVisible(); err != nil {
		return Machine{}, err
	}
	hostname, err := os.Hostname()
	if err != nil {
		return Machine{}, err
	}
	return Machine{BootID: strings.TrimSpace(string(boot)), Hostname: hostname, Namespace: inode}, nil
}

// maxBoots is how many boots of the machine are recorded.
const maxBoots = 32

// boots is the content of the file in which a witness records the boots of its machine.
type boots struct {
	Machine  string   `json:"machine"`           // /etc/machine-id
	Product  string   `json:"product,omitempty"` // of the board or the virtual machine, where it may be read
	Hostname string   `json:"hostname"`
	Boots    []string `json:"boots"` // boot ids, oldest first
}

// RememberBoots adds the current boot of the machine to the file in this directory, and returns the machine with the
// earlier boots. A file that another machine wrote, because its disk was copied, is replaced: then forgotten is true.
// Two machines with the same fingerprint must not share the directory.
func RememberBoots(m Machine, dir string) (with Machine, forgotten bool, err error) {
	return rememberBoots(m, dir, fingerprint{
		machine: []string{"/etc/machine-id", "/var/lib/dbus/machine-id"},
		product: []string{"/sys/class/dmi/id/product_uuid", "/sys/class/dmi/id/board_serial"},
	})
}

// fingerprint is the files that distinguish machines: of each kind, the first that can be read.
type fingerprint struct{ machine, product []string }

func rememberBoots(m Machine, dir string, id fingerprint) (with Machine, forgotten bool, err error) {
	file := filepath.Join(dir, "boots.json")
	now := boots{Machine: readFirst(id.machine), Product: readFirst(id.product), Hostname: m.Hostname}
	if now.Machine == "" {
		return m, false, errors.New("this machine has no /etc/machine-id: without it a reboot cannot be told from " +
			"another machine")
	}
	before, err := readBoots(file)
	if err != nil {
		return m, false, err
	}
	if forgotten = len(before.Boots) > 0 && !before.sameMachine(now); !forgotten {
		now.Boots = before.Boots
	}
	now.Boots = append(slices.DeleteFunc(now.Boots, func(id string) bool { return id == m.BootID }), m.BootID)
	now.Boots = now.Boots[max(0, len(now.Boots)-maxBoots):]
	text, err := json.Marshal(now)
	if err == nil {
		err = maybe.WriteFile(file, append(text, '\n'), 0o600) // as a whole, or not at all
	}
	if err != nil {
		return m, false, err
	}
	m.Earlier = now.Boots[:len(now.Boots)-1]
	return m, forgotten, nil
}

// sameMachine reports whether both were written on the same machine. Values that either could not read are ignored.
func (b boots) sameMachine(other boots) bool {
	return b.Machine == other.Machine && b.Hostname == other.Hostname &&
		(b.Product == "" || other.Product == "" || b.Product == other.Product)
}

func readBoots(file string) (b boots, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return boots{}, nil
	}
	if err != nil {
		return boots{}, err
	}
	if err := json.Unmarshal(text, &b); err != nil {
		return boots{}, fmt.Errorf("%s is not what a witness wrote: delete it", file)
	}
	return b, nil
}

// readFirst returns the text of the first file that can be read.
func readFirst(files []string) string {
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			return strings.TrimSpace(string(text))
		}
	}
	return ""
}
