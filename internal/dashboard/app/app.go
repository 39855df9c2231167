// Package app has what all handlers of the dashboard share: its configuration, the request as one value, the frame of a
// page, links, errors, templates, times in words, and one lock as it was read.
package app

import (
	"cmp"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
	"github.com/clustermutex/unlocker/internal/dashboard/stacktrace"
	"github.com/clustermutex/unlocker/internal/dashboard/timeline"
	"github.com/clustermutex/unlocker/internal/locks"
)

// App is what all handlers share. It lives as long as the dashboard; a [Request] lives as long as an answer.
type App struct {
	Refusals  RefusalLog // as far as the log has them
	Config    Config
	URLs      URLs
	History   *etcdread.History
	Intervals timeline.Store
	Templates Templates
	Traces    stacktrace.Parser
	slow      atomic.Bool // etcd answered last, but later than a page waits
}

func (s *App) Fresh() locks.Freshness { return locks.Freshness{Freshness: s.Config.View.Fresh()} }

func (s *App) ReadError(err error) error {
	return &HTTPError{Status: http.StatusServiceUnavailable, Code: "stale", Title: "etcd did not answer",
		Detail: "etcd could not be read: " + s.Config.Explain(err) + ".", Retry: etcdread.RereadEvery}
}

// EndDelay is the command of mutexctl that ends a lock delay.
const EndDelay = "force-unlock --end-delay"

// HoldFlags returns the flags of mutexctl for a hold and the reason of an action on it. A reason that is not known yet
// is an empty word.
func HoldFlags(uuid, reason, ticket string) []string {
	return append([]string{"--uuid", cmp.Or(uuid, "none"), "--reason", reason}, Flags("--ticket", ticket)...)
}

// Flags returns the pairs of flag and value whose value is not empty.
func Flags(pairs ...string) []string {
	var flags []string
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			flags = append(flags, pair...)
		}
	}
	return flags
}
