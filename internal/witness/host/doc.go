// Package host proves that holders of locks have ended, because it runs on their machine: it follows the locks
// in etcd, keeps those that processes of this machine hold, watches these processes, and states the end of one as soon
// as the kernel tells of it (docs/protocol.md, Dead holders).
//
// It would rather be silent than wrong. It states an end only of a process that it watched, or that is certainly not
// there: by its boot id, its pid namespace, its process id and the time when it began.
package host
