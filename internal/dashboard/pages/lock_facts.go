package pages

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// fact is a line about a hold; its value may come from the record and is shown with care.
type fact struct{ Label, Value string }

// timeFact is an instant in the life of a hold.
type timeFact struct {
	Label string
	Time  *app.Moment
	Note  string
}

func facts(r *locks.Row, lock *app.Lock) []fact {
	list := append(holderFacts(&r.Identity),
		fact{"hold", r.UUID}, fact{"fencing token", app.Known(r.Token)},
		fact{"record revision", app.Known(r.Revision)}, fact{"written by", lock.Document.Client},
		fact{"extended", extended(r.Extensions)})
	if r.LockDelay > 0 {
		list = append(list, fact{"lock delay", text.Duration(r.LockDelay)})
	}
	if p := r.Process; p != nil {
		pod := p.PodName
		if pod != "" && p.PodNamespace != "" {
			pod = p.PodNamespace + "/" + pod
		}
		list = append(list, fact{"pod", pod}, fact{"container", p.Container}, fact{"boot", p.BootID},
			fact{"cgroup", app.Known(p.CgroupID)})
	}
	for _, name := range slices.Sorted(maps.Keys(r.Attributes)) {
		list = append(list, fact{name, fmt.Sprint(r.Attributes[name])})
	}
	return known(list)
}

func holderFacts(h *metadata.Identity) (list []fact) {
	for _, f := range lockrecord.Facts(h) {
		list = append(list, fact(f))
	}
	return list
}

// known are the facts that have a value.
func known(list []fact) []fact {
	return slices.DeleteFunc(list, func(f fact) bool { return f.Value == "" })
}

// extended says how often the holder moved the deadline.
func extended(n int64) string {
	if n > 0 {
		return app.Plural(int(n), "time", "times")
	}
	return ""
}

func times(r *locks.Row, at app.Viewpoint) []timeFact {
	var list []timeFact
	add := func(label string, m *app.Moment, note string) {
		if m != nil {
			list = append(list, timeFact{label, m, note})
		}
	}
	byPolicy := func(recorded time.Time) string {
		if recorded.IsZero() {
			return "by the default policy"
		}
		return ""
	}
	add("locked", at.Since(r.LockedAt), "")
	if r.Alive != nil {
		add("last alive", at.Since(r.Alive.At), "")
	}
	add("alert", at.AlertOf(r.Record, r.Verdict()), byPolicy(r.AlertAt))
	add("auto-unlock", at.Next(r.UnlockAt()), byPolicy(r.AutoUnlockAt))
	return list
}

// fieldView is one key of the record, byte for byte.
type fieldView struct {
	Key     string
	Value   string
	Bytes   int
	Cut     bool
	Escaped bool // has characters that are shown as escapes
	Created int64
	Changed int64
}

// maxFieldBytes and maxFieldsBytes are how much of one value and of all values a page shows; the JSON has all.
const (
	maxFieldBytes  = 16 << 10
	maxFieldsBytes = 64 << 10
)

func (p *Pages) fieldViews(c access.Caller, doc metadata.FullRecord) []fieldView {
	views := make([]fieldView, 0, len(doc.Fields))
	left := maxFieldsBytes
	for _, f := range doc.Fields {
		v := fieldView{Key: f.Name, Value: f.Value, Bytes: len(f.Value), Created: f.CreateRevision,
			Changed: f.ModRevision}
		if Hidden(c, doc.Owner, f.Name) {
			continue
		}
		if p.app.Config.Layout.Prefix() != "" {
			v.Key = p.app.Config.Layout.Field(doc.Name, f.Name)
		}
		if most := min(maxFieldBytes, left); len(v.Value) > most {
			v.Value = v.Value[:most]
			v.Cut = true
		}
		left -= len(v.Value)
		v.Escaped = text.Visible(v.Value) != v.Value
		views = append(views, v)
	}
	return views
}

// Hidden reports whether the field may hold a backtrace, and the caller may not see those.
func Hidden(c access.Caller, owner, field string) bool {
	return !c.MayFor(access.Backtrace, owner) &&
		(field == lockrecord.FieldBacktrace || field == lockrecord.FieldMetadata)
}

// howItEnded says how the holder ended: "its container ended 40s ago with exit code 137 (OOMKilled)".
func howItEnded(s *metadata.Statement, at app.Viewpoint) app.Sentence {
	what, how := protocol.WhatEnded(s)
	said := app.Say(what)
	if ended := at.Since(protocol.EndedAt(s)); ended != nil {
		said = said.Say(" ").Time(ended)
	}
	return said.When(how != "", " "+how)
}

// suspected is what a row of the list says of a holder that is probably dead.
func suspected(r *metadata.Record, at app.Viewpoint) app.Sentence {
	if r.Death != nil || !diagnosis.Suspected(r) {
		return nil
	}
	return app.Say("probably dead: ").Sentence(howItEnded(r.Suspicion, at))
}

// witnessed is what a row of the list says of a holder that is dead for certain, or disputes it.
func witnessed(r *metadata.Record, at app.Viewpoint) app.Sentence {
	switch {
	case r.ProvenDead():
		return howItEnded(r.Death, at)
	case r.Disputed():
		return howItEnded(r.Death, at).Say(", which the holder disputes")
	}
	return nil
}

// suspicion says what a witness says that proves nothing, and why; nil where there is nothing.
func suspicion(r *metadata.Record, at app.Viewpoint) app.Sentence {
	switch {
	case r.Disputed():
		return app.Say("The witness ").Value(text.Clip(r.Death.By, app.MaxWordShown)).Say(" says that ").
			Sentence(howItEnded(r.Death, at)).Say(", but the holder called alive since: one of the two is wrong. " +
			"The lock does not count as abandoned.")
	case r.Death != nil && !r.ProvenDead():
		return app.Say("A witness says that ").Sentence(howItEnded(r.Death, at)).
			Say(". The work outlives its process, so that proves nothing.")
	case r.Suspicion != nil && r.Suspicion.Cause == metadata.CauseCommandLives:
		return app.Say("A witness says that ").Sentence(howItEnded(r.Suspicion, at)).
			Say(", and its command has not: ").Value(text.Clip(r.Suspicion.Reason, app.MaxLineShown)).
			Say(". The lock stays until that has ended, too.")
	case r.Suspicion != nil:
		said := app.Say("Suspected, not proven: ").Sentence(howItEnded(r.Suspicion, at))
		if how := r.Suspicion.Reason; how != "" {
			said = said.Say(" (").Value(text.Clip(how, app.MaxLineShown)).Say(")")
		}
		return said.Say(". Nothing is unlocked because of that.")
	}
	return nil
}
