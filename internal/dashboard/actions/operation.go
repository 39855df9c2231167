package actions

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Operation is something that an operator can do to the hold of another.
type Operation struct {
	*Handler
	action    string // as the audit trail calls it
	page      string // its form, below the prefix
	need      access.Permission
	on        func() bool // it is switched on
	off       string      // what to say where it is not
	many      string      // several of them, in a sentence
	done      string      // what a program is told
	reason    string      // what the text is called that says why
	minReason int         // characters
	rate      rate
	// checkTime says why a length of time cannot be used, as a sentence. Nil: the operation has no time.
	checkTime func(time.Duration) error
	moved     string // what happened when the hold is still there but not as it was; empty: that cannot be
	words     gentleWords
	// possible says why it makes no sense for a record, as a sentence.
	possible func(r *metadata.Record, a protocol.Action) error
	// meanwhile is what others did since the person looked at the form. Nil: that does not matter.
	meanwhile func(d *metadata.Document, asked *Request) deed
	// do does it and records it. The ending is the one that it wrote; zero = the hold goes on.
	do func(ctx context.Context, r *metadata.Record, a protocol.Action) (metadata.Ending, error)
	// form answers with the form that asks for it.
	form func(r *site.Request, lock *site.Lock, typed Request, name string, wrong *FieldError) (site.Answer, error)
	// show answers with the form that asks for it: form, for the hold that was asked for.
	show func(r *site.Request, typed Request, name string, wrong *FieldError) (site.Answer, error)
	// perform does what is asked for: do, to the hold that the person saw.
	perform func(r *site.Request, asked Request) (protocol.Action, error)
	// after is where a person finds what came of it.
	after func(r *site.Request, asked Request) string
	typed bool // the person types the name of the lock
}

// Page is where its form is, below the prefix.
func (o *Operation) Page() string { return o.page }

// API is where programs ask for it, below the prefix.
func (o *Operation) API() string { return "api/v1/lock/" + o.action }

func (h *Handler) newUnlock() *Operation {
	config := &h.site.Config
	o := &Operation{Handler: h, action: protocol.ActionForceUnlock, page: "unlock", need: access.Unlock,
		on: func() bool { return config.ForceUnlock != nil },
		off: "Force unlock is switched off on this dashboard. A person with write access to etcd can use " +
			"mutexctl force-unlock.",
		many: "force unlocks", done: "unlocked", reason: "reason", minReason: minReason, typed: true,
		possible: func(*metadata.Record, protocol.Action) error { return nil },
	}
	o.do = func(ctx context.Context, r *metadata.Record, a protocol.Action) (metadata.Ending, error) {
		removal := protocol.Forced(r, a, r.DelayOf(config.Policy().LockDelay))
		return removal.Ending, config.ForceUnlock(ctx, removal, a)
	}
	o.form = o.unlockForm
	return o
}

// minReason is how many characters the reason needs for what takes something away.
const minReason = 10

const gentleOff = " is switched off on this dashboard. A person with write access to etcd can use mutexctl "

func (h *Handler) newAsk() *Operation {
	config := &h.site.Config
	o := &Operation{Handler: h, action: protocol.ActionAsk, page: "ask", need: access.Ask,
		on:   func() bool { return config.AskHolder != nil },
		off:  "Asking holders to finish" + gentleOff + "ask.",
		many: "requests to finish", done: "asked", reason: "reason", minReason: 1,
		words: gentleWords{Title: "Ask the holder to finish", Tab: "ask to finish",
			Effects: []string{
				"The request is written into the record. The holder keeps the lock: it sees the request if its " +
					"library watches the lock, and finishes early if it can.",
				"This page shows whether the holder has been alive since.",
			},
			Why: "Why? The holder reads it, and the audit trail keeps it.", Do: "Ask to finish"},
		possible:  func(r *metadata.Record, _ protocol.Action) error { return protocol.CheckAsk(r) },
		meanwhile: askedMeanwhile,
	}
	o.do = func(ctx context.Context, r *metadata.Record, a protocol.Action) (metadata.Ending, error) {
		return metadata.Ending{}, config.AskHolder(ctx, r, a)
	}
	o.form = o.gentleForm
	return o
}

func (h *Handler) newExtend() *Operation {
	config := &h.site.Config
	o := &Operation{Handler: h, action: protocol.ActionExtend, page: "extend", need: access.Extend,
		on:   func() bool { return config.Extend != nil },
		off:  "Giving more time" + gentleOff + "extend.",
		many: "extensions", done: "extended", reason: "reason", minReason: 1, checkTime: protocol.CheckMoreTimeOf,
		moved: "the lock was extended just now. Look whether it still needs more time",
		words: gentleWords{Title: "Give more time to the holder of", Tab: "more time for",
			Effects: []string{
				"Alert and auto-unlock move forward by this much: from where they are, or from now if they have " +
					"passed. A lock that alerts stops alerting until then.",
				"Nothing takes the time back; who waits for the lock may wait that much longer.",
			},
			HowLong: "How much time?", Why: "Why? The record and the audit trail keep it.", Do: "Give more time"},
		possible: func(r *metadata.Record, a protocol.Action) error {
			return protocol.CheckMoreTime(r, time.Duration(a.Seconds)*time.Second, a.At.Time)
		},
		meanwhile: extendedMeanwhile,
	}
	o.do = func(ctx context.Context, r *metadata.Record, a protocol.Action) (metadata.Ending, error) {
		return metadata.Ending{}, config.Extend(ctx, r, a)
	}
	o.form = o.gentleForm
	return o
}

func (h *Handler) newAcknowledge() *Operation {
	config := &h.site.Config
	o := &Operation{Handler: h, action: protocol.ActionAcknowledge, page: "acknowledge", need: access.Acknowledge,
		on:   func() bool { return config.Acknowledge != nil && config.Withdraw != nil },
		off:  "Acknowledging locks" + gentleOff + "ack.",
		many: "acknowledgements", done: "acknowledged", reason: "note", checkTime: protocol.CheckAcknowledgeFor,
		moved: "somebody else has acknowledged the lock just now",
		words: gentleWords{Title: "Acknowledge", Tab: "acknowledge",
			Effects: []string{
				"Everybody sees your name, the note and the end: here, on the command line, and in alerts about " +
					"the lock.",
				"It silences no alert, and changes nothing for the holder.",
				"It ends by itself when the time is over, and with this hold.",
			},
			HowLong: "For how long?", Why: "What are you doing about it? May be empty.", Do: "Acknowledge"},
		meanwhile: acknowledgedMeanwhile,
	}
	o.possible = func(r *metadata.Record, a protocol.Action) error {
		if err := protocol.CheckAcknowledge(r); err != nil || a.Action != protocol.ActionWithdraw {
			return err
		}
		return protocol.CheckWithdraw(r)
	}
	o.do = func(ctx context.Context, r *metadata.Record, a protocol.Action) (metadata.Ending, error) {
		if a.Action == protocol.ActionWithdraw {
			return metadata.Ending{}, config.Withdraw(ctx, r, a)
		}
		return metadata.Ending{}, config.Acknowledge(ctx, r, a)
	}
	o.form = o.gentleForm
	return o
}

// readMore reads for how long it is.
func (r *Request) readMore(check func(time.Duration) error) error {
	if r.Besides != "" {
		return &FieldError{"more", "Which time is it? You chose " + r.Besides + " and typed " +
			text.Visible(text.Clip(r.More, 20)) + ". Choose what you typed, or delete it."}
	}
	d, err := locks.ParseDuration(text.Clip(strings.Join(strings.Fields(r.More), ""), 20))
	if err == nil && d%time.Second != 0 {
		err = errors.New("it must be in whole seconds")
	}
	if err != nil {
		return &FieldError{"more", "How much time is that? Write it like 45m, 1h30m or 2d."}
	}
	if err := check(d); err != nil {
		return &FieldError{"more", "That is too little or too much: " + err.Error() + "."}
	}
	r.seconds = int64(d / time.Second)
	return nil
}
