package actions

import (
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/protocol"
)

// usualTime is the amount of time that forms suggest.
const usualTime = 30 * time.Minute

// command is the command line that does what was typed into the form, to the hold that was seen.
func (o *Operation) command(asked Request) string {
	reason, ticket := oneLine(asked.Reason), oneLine(asked.Ticket)
	flags := site.OfHold(asked.Hold, reason, ticket)
	name := o.action
	switch {
	case o.action == protocol.ActionExtend:
		flags = append([]string{flags[0], flags[1], "--by", asked.time()}, flags[2:]...)
	case o.action == protocol.ActionAcknowledge && asked.Withdraw:
		name = "ack"
		flags = append(flags[:2], "--withdraw")
	case o.action == protocol.ActionAcknowledge:
		name = "ack"
		flags = append(flags[:2], "--for", asked.time())
		if reason != "" {
			flags = append(flags, "--note", reason)
		}
		if ticket != "" {
			flags = append(flags, "--ticket", ticket)
		}
	}
	return o.site.Mutexctl(name, asked.Name, flags...)
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
