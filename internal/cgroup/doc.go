// Package cgroup makes groups of processes, and looks at them, in the tree of cgroups of Linux, version 2. No process
// leaves its group by fork, setsid or the closing of descriptors, and the kernel says of a group whether anybody is
// left in it. Its id is the inode number of its directory, and is not used again before the machine reboots.
package cgroup
