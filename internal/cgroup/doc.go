// Package cgroup makes and inspects process groups in Linux's cgroup v2 tree. A process cannot leave its group by fork,
// setsid or closing descriptors, and the kernel reports whether a group still has processes. The id of a group is the
// inode number of its directory, which is not reused before the machine reboots.
package cgroup
