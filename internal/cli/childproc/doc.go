// Package childproc runs a command as a shell would: in a process group of its own, with the terminal and the signals
// handed over.
package childproc
