package pages

import (
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// keyFigure is one of the numbers on top of the page of a lock.
type keyFigure struct {
	Label       string
	Value, Note app.RichText
	IsBad       bool
}

// figures returns how late the lock is, when its holder reported, when it ends by itself, and how long it usually
// takes.
func (p *Pages) figures(r *app.Request, lock *app.Lock, past []metadata.Ending) []keyFigure {
	row := lock.Row
	at := lock.Viewpoint(r.Viewpoint())
	input := p.headlineInput(r)
	held := new(locks.NewHeldLock(row.Name, []*locks.Row{row}))
	when, why := input.AutoUnlock(held)
	unlock := keyFigure{Label: "auto-unlock", Value: p.sentenceAt(when, at), Note: p.sentenceAt(why, at)}
	usual := keyFigure{Label: "usually takes", Value: app.Plain("unknown"), Note: app.Plain("too few holds seen")}
	if takes, seen := p.usualHold(r, past); seen != "" {
		usual.Value, usual.Note = app.Plain(takes), app.Plain(seen)
	}
	late := lateFigure(row, at, input.WhyNeverRemoved(held) != "")
	return []keyFigure{late, reportFigure(row, at), progressFigure(row, at), unlock, usual}
}

func lateFigure(row *locks.Row, at app.Viewpoint, neverRemoved bool) keyFigure {
	v := row.Judgement
	lastingFigure := func(label string, since time.Time) keyFigure {
		return keyFigure{Label: label, Value: app.RichText{}.Time(at.Elapsed(since)), IsBad: true}
	}
	switch {
	case row.ProvenDead() && !protocol.EndedAt(row.Death).IsZero():
		return lastingFigure("dead for", protocol.EndedAt(row.Death))
	case v.State == metadata.StateExpired:
		return lastingFigure("expired for", v.ExpiresAt)
	case v.State == metadata.StateAlerting:
		return lastingFigure("late", row.LateSince())
	case v.DueAlert.IsZero():
		return keyFigure{Label: "alert", Value: app.Plain("never")}
	}
	return keyFigure{Label: "alert", Value: app.RichText{}.Time(at.AlertOf(row.Record, v, neverRemoved))}
}

func reportFigure(row *locks.Row, at app.Viewpoint) keyFigure {
	f := keyFigure{Label: "last report", Value: app.Plain("never")}
	if row.Rhythm() == 0 {
		return f
	}
	f.Value = app.RichText{}.Time(at.Since(row.Alive.At))
	f.IsBad = row.Class == locks.ClassSilent
	return f
}

// progressFigure returns when the holder last reported progress, as far as that is known: a heartbeat repeats the text.
func progressFigure(row *locks.Row, at app.Viewpoint) keyFigure {
	f := keyFigure{Label: "last progress", Value: app.Plain("none"), IsBad: row.Class == locks.ClassLate}
	switch {
	case row.Rhythm() == 0, row.Alive.Progress == "" && row.Class == locks.ClassLate:
		return f
	case row.Alive.Progress == "":
		f.Value, f.Note = app.Plain("unknown"), app.Plain("its reports have no text")
		return f
	}
	f.Note = app.RichText{}.Value(text.Clip(row.Alive.Progress, app.MaxWordShown))
	f.Value = app.RichText{}.Time(at.Since(row.Alive.At))
	switch {
	case row.Class != locks.ClassLate:
		f.Note = app.Plain("or earlier: ").Append(f.Note)
	case diagnosis.ReportsProgress(row.Record):
		f.IsBad = false
	default:
		f.Value = app.Plain("over ").Time(at.Since(row.LateSince()))
	}
	return f
}

// usualHold returns how long a lock is usually held, and how many holds say so; nothing if too few do.
func (p *Pages) usualHold(r *app.Request, past []metadata.Ending) (takes, seen string) {
	gaps, _ := p.app.History.WatchGaps(r.Now, r.Fresh)
	median, holds := etcdread.UsualHold(past, gaps)
	if holds == 0 {
		return "", ""
	}
	takes = text.Duration(median)
	if median < time.Second {
		takes = "less than a second"
	}
	return takes, text.Thousands(holds) + " holds seen"
}
