package pages

import (
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Head is what the page of a held lock and its forms say first, in the same words.
type Head struct {
	Said      Headline
	Alive     *app.TimeText // the last report of a holder that is heard of; nil for any other
	Sentence  app.RichText  // who holds it
	Diagnosis app.RichText  // what is probably the matter with the holder; nil where nothing is known
	Ack       app.RichText  // who looks at it; nil: nobody
	Share     string        // what the holder has of a lock that several can hold
	Whole     *MultiHolderLock
	Purpose   string
	Delays    delaysView
	Done      []string // what operators did to the hold, in sentences
	Notes     []app.RichText
}

// NewHead returns the head of a lock that is held.
func (p *Pages) NewHead(r *app.Request, lock *app.Lock, past []metadata.Ending) Head {
	row := lock.Row
	at := lock.Viewpoint(r.Viewpoint())
	said := p.HeadlineOf(r, lock, true)
	v := Head{Said: said, Sentence: holderText(row, at), Purpose: row.Purpose,
		Diagnosis: p.diagnosisText(p.Diagnose(r, lock, past), said.Class, at), Ack: ackText(row.Acknowledged),
		Share: protocol.DescribeShare(row.Share()), Whole: multiHolderLockOf(r, row), Delays: p.delaysOf(r, lock.Name),
		Done: nonEmpty(protocol.DescribeFinishRequest(row.Record, r.Now),
			protocol.DescribeMoreTime(row.MoreTime, r.Now))}
	if !row.ProvenDead() && !row.IsSilent(at.AsOf) {
		v.Alive = at.Elapsed(row.Alive.At)
	}
	if lock.ReadError != "" {
		v.Notes = append(v.Notes,
			app.Plain("etcd could not be read: ").Value(lock.ReadError).
				Plain(". The rest is from the watch, as of ").Time(app.Clock(r.Fresh.HeardAt)).
				Plain("; some keys are missing."))
	}
	for _, note := range []app.RichText{skewText(row, r.Now), p.explainStatement(row.Record, at)} {
		if note != nil {
			v.Notes = append(v.Notes, note)
		}
	}
	return v
}

// Diagnose says what is probably the matter with the holder of a lock. past are holds of the lock that are over.
func (p *Pages) Diagnose(r *app.Request, lock *app.Lock, past []metadata.Ending) diagnosis.Diagnosis {
	row := lock.Row
	f := diagnosis.Input{Record: row.Record, Judged: row.Judgement, Now: lock.Viewpoint(r.Viewpoint()).AsOf,
		ReportInterval: diagnosis.ReportInterval(row.Record)}
	f.AddPastHolds(past)
	s := r.Snapshot()
	f.Waits, _ = diagnosis.WaitChain(row.Record, s.Queues, func(lock string) (holders []*metadata.Record, _ error) {
		for _, h := range s.Holders(lock) {
			holders = append(holders, h.Record)
		}
		return holders, nil
	})
	return diagnosis.Diagnose(f)
}

// diagnosisText returns a diagnosis as a page says it, without what the headline above says; nil if nothing is left.
func (p *Pages) diagnosisText(d diagnosis.Diagnosis, said locks.Class, at app.Viewpoint) app.RichText {
	why := d.Why
	switch {
	case d.Condition == diagnosis.Unknown, d.Condition == diagnosis.Dead,
		d.Condition == diagnosis.Waiting && said == locks.ClassDeadlock:
		return nil
	case said == locks.ClassSilent, said == locks.ClassLate:
		why = d.Beyond
	}
	words := app.RichText{}.Value(d.Label)
	if why != nil {
		words = words.Plain(": ").Append(p.sentenceAt(why, at))
	}
	return words.Plain(".")
}

// incident is what somebody pastes into the channel of an incident: plain text, as of now.
func (p *Pages) incident(v *lockPage, r *app.Request, row *locks.Row) string {
	lines := []string{text.Visible(row.Name) + ": " + v.Head.Said.String()}
	if environment := v.Environment; environment != "" {
		lines[0] = "[" + environment + "] " + lines[0]
	}
	for _, said := range []app.RichText{v.Head.Sentence, v.Head.Diagnosis, v.Head.Ack} {
		if said != nil {
			lines = append(lines, said.String())
		}
	}
	if v.Queue.N > 0 {
		lines = append(lines, text.Count(v.Queue.N, "waiter")+", first in line "+v.Queue.First[0].sentence().String())
	}
	if v.Head.Purpose != "" {
		lines = append(lines, "For: "+text.Visible(v.Head.Purpose))
	}
	if v.Trace != nil && v.Trace.First != nil {
		at := "At: " + v.Trace.First.Position()
		if f := v.Trace.First.Func; f != "" {
			at += " in " + f
		}
		lines = append(lines, text.Visible(at))
	}
	lines = append(lines, "Time: "+app.UTC(v.Viewpoint.AsOf))
	if url := p.app.URLs.Lock(row.Name, row.UUID); url != "" {
		lines = append(lines, r.Caller.Origin+url)
	}
	return strings.Join(lines, "\n")
}

// holderText returns who holds the lock, and for how long.
func holderText(r *locks.Row, at app.Viewpoint) app.RichText {
	var s app.RichText
	if at.Stale {
		s = s.Plain("As of ").Time(app.Clock(at.AsOf)).Plain(": ")
	}
	if r.Token == 0 {
		s = s.Plain("Not held, but keys of its record were left")
	} else {
		s = s.Plain("Held")
	}
	if r.Owner != "" {
		s = s.Plain(" by ").Value(r.Owner)
	}
	if host := locks.HostPID(r.Hostname, r.PID); r.Hostname != "" {
		s = s.Plain(" on ").Value(host)
	}
	if held := at.Elapsed(r.LockedAt); held != nil {
		s = s.Plain(" for ").Time(held)
	}
	return s.Plain(".")
}

// clockOffText returns how far a holder's clock is off; empty when it is not.
func clockOffText(off time.Duration) string {
	switch {
	case off > 0:
		return "clock " + text.Duration(off) + " ahead"
	case off < 0:
		return "clock " + text.Duration(-off) + " behind"
	}
	return ""
}

// skewText says what it means for the lock that its holder's clock differs from the one here; nil if it does not.
func skewText(r *locks.Row, now time.Time) app.RichText {
	off := r.ClockOff
	if ahead := r.LockedAt.Sub(now); off == 0 && ahead > 5*time.Second {
		return app.Plain("clock skew +" + text.Duration(ahead) + ": the holder's clock is ahead of this dashboard's.")
	}
	switch {
	case off < 0:
		return app.Plain("clock skew -" + text.Duration(-off) + ": the holder's clock is behind this dashboard's. " +
			"The auto-unlock is shown by this dashboard's clock, which is later than the record says.")
	case off > 0:
		return app.Plain("clock skew +" + text.Duration(off) + ": the holder's clock is ahead of this dashboard's. " +
			"The alert is shown by this dashboard's clock, which is earlier than the record says.")
	}
	return nil
}
