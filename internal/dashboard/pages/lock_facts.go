package pages

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/headline"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// fact is a line about a hold; its value may come from the record and is shown with care.
type fact struct{ Label, Value string }

type timeFact struct {
	Label string
	Time  *app.TimeText
	Note  string
}

func facts(r *locks.Row, lock *app.Lock) []fact {
	list := append(holderFacts(&r.Identity),
		fact{"hold", r.UUID}, fact{"fencing token", app.NumberOrEmpty(r.Token)},
		fact{"record revision", app.NumberOrEmpty(r.Revision)}, fact{"written by", lock.FullRecord.Client})
	if r.Extensions > 0 {
		list = append(list, fact{"extended", app.Plural(int(r.Extensions), "time", "times")})
	}
	if r.LockDelay > 0 {
		list = append(list, fact{"lock delay", text.Duration(r.LockDelay)})
	}
	if p := r.Process; p != nil {
		pod := p.PodName
		if pod != "" && p.PodNamespace != "" {
			pod = p.PodNamespace + "/" + pod
		}
		list = append(list, fact{"pod", pod}, fact{"container", p.Container}, fact{"boot", p.BootID},
			fact{"cgroup", app.NumberOrEmpty(p.CgroupID)})
	}
	for _, name := range slices.Sorted(maps.Keys(r.Attributes)) {
		list = append(list, fact{name, fmt.Sprint(r.Attributes[name])})
	}
	return withoutEmpty(list)
}

func holderFacts(h *metadata.Identity) (list []fact) {
	for _, f := range lockrecord.Facts(h) {
		list = append(list, fact(f))
	}
	return list
}

func withoutEmpty(list []fact) []fact {
	return slices.DeleteFunc(list, func(f fact) bool { return f.Value == "" })
}

// timeFacts returns the instants in the life of a hold.
func timeFacts(r *locks.Row, at app.Viewpoint, c *headline.Input) []timeFact {
	var list []timeFact
	held := &locks.HeldLock{Row: r, Lock: r.Name}
	add := func(label string, m *app.TimeText, note string) {
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
		add("last report", at.Since(r.Alive.At), "")
	}
	add("alert", at.AlertOf(r.Record, r.Judgement, c.WhyNeverRemoved(held) != ""), byPolicy(r.AlertAt))
	whyNot := c.WhyNotRemoved(held)
	if whyNot != "" {
		whyNot = "but " + whyNot
	}
	add("auto-unlock", at.Next(r.DueUnlock()), cmp.Or(whyNot, byPolicy(r.AutoUnlockAt)))
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

func (p *Pages) fieldViews(c access.Caller, record metadata.FullRecord) []fieldView {
	views := make([]fieldView, 0, len(record.Fields))
	left := maxFieldsBytes
	for _, f := range record.Fields {
		v := fieldView{Key: p.app.Config.Layout.Field(record.Name, f.Name), Value: f.Value, Bytes: len(f.Value),
			Created: f.CreateRevision, Changed: f.ModRevision}
		if Hidden(c, record.Owner, f.Name) {
			continue
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

// explainStatement explains a statement that proves nothing; nil if there is none.
func (p *Pages) explainStatement(r *metadata.Record, at app.Viewpoint) app.RichText {
	switch {
	case r.Disputed():
		return app.Plain("The witness ").Value(text.Clip(r.Death.By, app.MaxWordShown)).Plain(" says that ").
			Append(p.sentenceAt(diagnosis.EndedText(r.Death),
				at)).Plain(", but the holder has called alive since: one of the " +
			"two is wrong. The lock does not count as abandoned.")
	case r.Death != nil && !r.ProvenDead():
		return app.Plain("A witness says that ").Append(p.sentenceAt(diagnosis.EndedText(r.Death), at)).
			Plain(". The work outlives its process, so that proves nothing.")
	case r.Suspicion != nil && r.Suspicion.Cause == metadata.CauseCommandLives:
		return app.Plain("A witness says that ").Append(p.sentenceAt(diagnosis.EndedText(r.Suspicion), at)).
			Plain(", and its command has not: ").Value(text.Clip(r.Suspicion.Reason, app.MaxLineShown)).
			Plain(". The lock stays until that has ended, too.")
	case r.Suspicion != nil && r.Suspicion.Reason != "":
		return app.Plain("Suspected: ").Value(text.Clip(r.Suspicion.Reason, app.MaxLineShown)).
			Plain(". Nothing is unlocked because of that.")
	}
	return nil
}
