// Package childproc runs a command as a shell does: in its own process group, which gets the terminal and the signals.
package childproc
