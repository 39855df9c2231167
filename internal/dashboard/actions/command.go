package actions

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
)

// usualTime is the amount of time that forms suggest.
const usualTime = 30 * time.Minute

// command is the command line that does what was typed into the form, to the hold that was seen.
func (o *Operation) command(asked Request) string {
	flags := site.OfHold(asked.Hold, oneLine(asked.Reason), oneLine(asked.Ticket))
	seen, why := flags[:2], flags[2:]
	var length []string
	if o.lengthFlag != "" {
		length = []string{"--" + o.lengthFlag, asked.time()}
	}
	if o.Why == "note" { // which may be left out
		why = site.Flags("--note", oneLine(asked.Reason), "--ticket", oneLine(asked.Ticket))
	}
	if asked.Undo {
		length = []string{"--withdraw"}
		why = nil
	}
	name := cmp.Or(o.wording.command, string(o.verb))
	return o.site.Mutexctl(name, asked.Name, slices.Concat(seen, length, why)...)
}

// time is the amount of time as the command line takes it: what was typed, or what forms suggest if nobody can read it.
func (r *Request) time() string {
	d, err := locks.ParseDuration(strings.Join(strings.Fields(r.More), ""))
	if err != nil || d <= 0 {
		d = usualTime
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
