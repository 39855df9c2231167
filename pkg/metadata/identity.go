package metadata

// Identity has the owner, host and process of a holder or waiter, and its purpose. Any field may be unknown: empty or
// 0.
type Identity struct {
	Owner    string `json:"owner,omitempty"`
	Hostname string `json:"hostname,omitempty"`
	PID      int64  `json:"pid,omitempty"`
	Purpose  string `json:"purpose,omitempty"`
}

// Process identifies the process that holds a lock, in addition to its host name and process id, so that a witness can
// prove its end. A client writes what it can find out; the rest is empty or 0.
type Process struct {
	// BootID identifies the current boot of the machine: /proc/sys/kernel/random/boot_id.
	BootID string `json:"boot_id,omitempty"`
	// Start is when the process started, in clock ticks since boot: /proc/PID/stat, field 22. It is 0 if the end of the
	// process is not the end of its work: then there is SupervisorStart instead, or none.
	Start int64 `json:"process_start,omitempty"`
	// PIDNamespace is the namespace of its process id: the inode of /proc/PID/ns/pid.
	PIDNamespace int64 `json:"pid_namespace,omitempty"`
	// SupervisorStart is the same for a process whose commands, in the cgroup CgroupID, do the work. Because of its own
	// name, readers that do not know CgroupID see no proof in the end of the process.
	SupervisorStart int64 `json:"supervisor_start,omitempty"`
	// CgroupID is the cgroup in which the process runs its commands, whose end, not its own, ends the work: the inode
	// of the directory in the cgroup v2 file system.
	CgroupID int64 `json:"cgroup_id,omitempty"`

	// In Kubernetes, from the downward API.
	PodNamespace string `json:"pod_namespace,omitempty"`
	PodName      string `json:"pod_name,omitempty"`
	PodUID       string `json:"pod_uid,omitempty"`
	Container    string `json:"container,omitempty"`

	// Detached means that the work outlives the process, as with a reservation: its end proves nothing.
	Detached bool `json:"detached,omitempty"`
}
