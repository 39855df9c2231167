// Package cli is the command tree of mutexctl, for people and for scripts.
//
// [Main] runs one command line and returns its exit status; everything it touches is handed in as a [Process], so that
// a test runs the same code as the binary. Every command is an options struct, a constructor and a run method in a file
// of its own:
//
//   - see: list, show, watch, wait, history, periods, tasks, check
//   - hold: run, alive, unlock, reserve
//   - operate: force-unlock, reset-period, sweep
//
// Text that comes out of etcd was written by somebody else. It reaches a terminal only through
// [text.Visible], and scripts as JSON.
package cli
