// Package cli implements the commands of mutexctl.
//
// [Main] runs one command line and returns its exit status. Everything it touches is in a [Process], so tests run the
// same code as the binary. Each command has a file, with an options struct, a constructor and a run method:
//
//   - see: list, show, watch, wait, history, periods, tasks, check
//   - hold: run, alive, unlock, reserve
//   - operate: ask, extend, ack, force-unlock, end-delay, reset-period, sweep
//
// The files form layers, and each uses only files below it: root.go; the commands; what some of them share (page,
// holders, take, job); connection and reading (session, read); words, flags and exit statuses (format, arguments,
// exit).
//
// Text from etcd is hostile. It reaches a terminal only through [text.Visible], and scripts only as JSON.
package cli
