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
	reason, ticket := oneLine(asked.Reason), oneLine(asked.Ticket)
	flags := site.OfHold(asked.Hold, reason, ticket)
	seen, why := flags[:2:2], flags[2:]
	if o.Why == "note" {
		why = nil
		for _, f := range [][2]string{{"--note", reason}, {"--ticket", ticket}} {
			if f[1] != "" {
				why = append(why, f[:]...)
			}
		}
	}
	switch {
	case asked.Undo:
		flags = append(seen, "--withdraw")
	case o.lengthFlag != "":
		flags = slices.Concat(seen, []string{"--" + o.lengthFlag, asked.time()}, why)
	default:
		flags = append(seen, why...)
	}
	return o.site.Mutexctl(cmp.Or(o.wording.command, string(o.verb)), asked.Name, flags...)
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
