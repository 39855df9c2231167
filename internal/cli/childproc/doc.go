// Package childproc runs a command as a shell does: in a process group of its own, which gets the terminal and the
// signals.
package childproc
