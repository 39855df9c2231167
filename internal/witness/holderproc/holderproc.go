package holderproc

import (
	"cmp"
	"strings"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Source is where a process learns about itself. What it cannot read is empty.
type Source struct {
	Read   func(file string) string // the content of a small file
	Link   func(file string) string // the target of a symbolic link
	Getenv func(name string) string
}

// initialTime is the inode of the time namespace that every machine begins with.
const initialTime = 4026531834

// Self is the identity of the process that asks, by its own /proc and environment.
func Self(s Source) metadata.Process {
	p := metadata.Process{
		PodNamespace: cmp.Or(clean(s.Getenv("POD_NAMESPACE")),
			clean(strings.TrimSpace(s.Read("/var/run/secrets/kubernetes.io/serviceaccount/namespace")))),
		PodName:   clean(s.Getenv("POD_NAME")),
		PodUID:    clean(s.Getenv("POD_UID")),
		Container: clean(s.Getenv("CONTAINER_NAME")),
	}
	if p.PodUID == "" || p.Container == "" {
		uid, container := ParseMounts(s.Read("/proc/self/mountinfo"))
		p.PodUID = cmp.Or(p.PodUID, uid, ParseCgroup(s.Read("/proc/self/cgroup")))
		if uid == p.PodUID {
			p.Container = cmp.Or(p.Container, container)
		}
	}
	if p.PodUID == "" && p.PodName == "" { // the other names are none of Kubernetes'
		p = metadata.Process{}
	}
	p.BootID = clean(strings.TrimSpace(s.Read("/proc/sys/kernel/random/boot_id")))
	if p.BootID == "" {
		return p // process ids and ticks mean nothing without it
	}
	p.PIDNamespace, _ = ParseNamespace(s.Link("/proc/self/ns/pid"))
	if stat, ok := ParseStat(s.Read("/proc/self/stat")); ok && p.PIDNamespace != 0 && s.ticksAreTheMachines() {
		p.Start = stat.Start
	}
	return p
}

// ticksAreTheMachines reports whether the process counts the ticks since boot as its machine does. In a time namespace
// of its own it does not, and a witness would look for another process.
func (s Source) ticksAreTheMachines() bool {
	link := s.Link("/proc/self/ns/time")
	if link == "" { // a kernel without time namespaces
		return true
	}
	inode, _ := ParseNamespace(link)
	return inode == initialTime
}
