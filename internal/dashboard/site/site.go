// Package site is what every answer of the dashboard is made with: the request as one value, the frame of a page,
// links, problems, templates, and one lock as it is found.
package site

import (
	"cmp"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/clustermutex/unlocker/internal/dashboard/history"
	"github.com/clustermutex/unlocker/internal/dashboard/intervals"
	"github.com/clustermutex/unlocker/internal/dashboard/setup"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
)

// Site is what every answer is made with. It lives as long as the dashboard; a [Request] lives as long as an answer.
type Site struct {
	Refusals  Refusals // as far as the log has them
	Config    setup.Config
	URLs      URLs
	Snapshots *locks.Snapshots
	History   *history.Store
	Intervals intervals.Store
	Templates Templates
	slow      atomic.Bool // etcd answered last, but later than a page waits
}

// Fresh is how current the view is.
func (s *Site) Fresh() locks.Freshness { return locks.Freshness{Freshness: s.Config.View.Fresh()} }

// Unlockers returns the unlockers that are alive.
func (s *Site) Unlockers() []protocol.Unlocker { return s.Config.View.Unlockers() }

// NotRead says that etcd could not be asked.
func (s *Site) NotRead(err error) error {
	return &Problem{Status: http.StatusServiceUnavailable, Code: "stale", Title: "etcd did not answer",
		Detail: "etcd could not be read: " + s.Config.Explain(err) + ".", Retry: history.RereadEvery}
}

// EndDelay is the command of mutexctl that ends a lock delay.
const EndDelay = "force-unlock --end-delay"

// Mutexctl is the command line about a lock. The flags are words, of which any may be hostile.
func (s *Site) Mutexctl(command, lock string, flags ...string) string {
	line := "mutexctl " + command + " "
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
