package host

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/clustermutex/unlocker/internal/witness/holderproc"
)

// initialPID is the inode of the pid namespace that every machine begins with: it contains all others.
const initialPID = 4026531836

// Machine is what a witness knows of the machine it runs on.
type Machine struct {
	BootID    string
	Hostname  string
	Namespace int64    // the pid namespace of the witness
	Earlier   []string // boot ids under which a witness ran on this machine before
}

// SeesAll reports whether the witness sees the processes of all pid namespaces of its machine.
func (m Machine) SeesAll() bool { return m.Namespace == initialPID }

// ReadMachine reads what there is to know of this machine from /proc. The error is a sentence about what keeps a
// witness from seeing the processes here.
func ReadMachine() (Machine, error) { return readMachine(proc{"/proc"}, os.Getpid()) }

func readMachine(p proc, pid int) (Machine, error) {
	boot, err := os.ReadFile(p.path("sys", "kernel", "random", "boot_id"))
	if err != nil {
		return Machine{}, fmt.Errorf("the boot id of this machine cannot be read: %w", err)
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
		return Machine{}, fmt.Errorf("the pid namespace of the witness cannot be read: %w", err)
	}
	inode, ok := holderproc.ParseNamespace(link)
	if !ok {
		return Machine{}, fmt.Errorf("the pid namespace of the witness is %q, which is no number", link)
	}
	if err := p.hides(); err != nil {
		return Machine{}, err
	}
	hostname, err := os.Hostname()
	if err != nil {
		return Machine{}, err
	}
	return Machine{BootID: strings.TrimSpace(string(boot)), Hostname: hostname, Namespace: inode}, nil
}
