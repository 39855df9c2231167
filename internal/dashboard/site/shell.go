package site

import (
	"cmp"

	"github.com/clustermutex/unlocker/internal/text"
)

// Mutexctl is the command line of a lock of this cluster. The flags are words, of which any may be hostile.
func (s *Site) Mutexctl(command, lock string, flags ...string) string {
	line := "mutexctl " + command + " "
	if s.URLs.Cluster != "" {
		line += "--cluster " + s.URLs.Cluster + " "
	}
	for _, word := range flags {
		line += text.ShellWord(word) + " "
	}
	return line + text.ShellOperand(lock)
}

// OfHold are the flags of mutexctl for a hold that somebody saw and what is done to it: the reason is an empty word if
// there is none yet, which mutexctl refuses and asks for.
func OfHold(uuid, reason, ticket string) []string {
	flags := []string{"--uuid", cmp.Or(uuid, "none"), "--reason", reason}
	if ticket != "" {
		flags = append(flags, "--ticket", ticket)
	}
	return flags
}
