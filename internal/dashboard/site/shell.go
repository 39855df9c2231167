package site

import (
	"cmp"
	"slices"

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
	return append([]string{"--uuid", cmp.Or(uuid, "none"), "--reason", reason}, Flags("--ticket", ticket)...)
}

// Flags are the flags among these pairs of flag and value that have a value.
func Flags(pairs ...string) []string {
	var flags []string
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			flags = append(flags, pair...)
		}
	}
	return flags
}
