package pages

import (
	"net/http"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// lockFrame is what is around every page about a lock.
type lockFrame struct {
	app.Page
	Name          string
	Back          string // the list in the view that led here
	Delays        delaysView
	Usually       string // how long it is usually held; empty if too few holds are known
	Queue         QueueView
	ReadError     string // why etcd could not be read
	HoldRequested bool   // and it is not the current one
	History       lockHistory
	Chart         *chart
}

func (p *Pages) lockFrame(r *app.Request, lock *app.Lock) lockFrame {
	f := lockFrame{Page: p.app.Page(r, lock.Name), Name: lock.Name, Back: p.app.URLs.List(FromView(r)),
		Delays: p.delaysOf(r, lock.Name), History: p.lockHistory(r, lock)}
	all, incompleteBefore := p.app.LockIntervals(r, lock, f.History.past)
	gaps, _ := p.app.History.WatchGaps(r.Now, r.Fresh)
	f.Usually = usually(etcdread.UsualHold(f.History.past, gaps))
	f.Chart = p.lockChart(r, lock, all, incompleteBefore)
	f.NavEntry = "list"
	f.Queue = NewQueueView(lock.Waiters, maxWaiters, f.Viewpoint)
	f.ReadError = lock.ReadError
	f.HoldRequested = lock.RequestedHold != ""
	f.JSON = p.app.URLs.LockAPI(lock.Name)
	return f
}

// usually says how long a lock is usually held; nothing if there are no holds that show it.
func usually(median time.Duration, holds int) string {
	if holds == 0 {
		return ""
	}
	takes := text.Duration(median)
	if median < time.Second {
		takes = "less than a second"
	}
	return "Usually takes " + takes + " (" + text.Thousands(holds) + " holds seen)"
}

type lockPage struct {
	lockFrame
	State           locks.DisplayState
	Headline        Headline     // what a person must know first of it
	Suspected       app.RichText // what a witness says that proves nothing
	Sentence        app.RichText
	Diagnosis       app.RichText     // what is probably the matter with the holder; nil where nothing is known
	Share           string           // what the holder has of a lock that several can hold
	MultiHolderLock *MultiHolderLock // that lock
	Purpose         string
	Progress        string
	Hold            holdView
	Facts           []fact
	Times           []timeFact
	Problems        []metadata.Problem
	MalformedPolicy string // what the unlocker does with a malformed record
	Clock           string // the holder's clock, where it is off
	Skew            string // what follows from it
	Trace           *traceView
	Hidden          string // why there is no backtrace
	RawTrace        string
	Commands        []Command
	Links           []Link
	Copies          []copyView
	Fields          []fieldView
	Ended           *endedView
	Free            bool // nobody holds the lock any more
	Cycles          []cycleView
	Current         string   // link to the current hold when another was asked for
	Done            []string // what operators did to the hold, in sentences
	Marks           []Link   // what can be done without taking anything away
	Ack             ackView
	Force           string // where the hold can be ended by force
	NoForce         string // why it cannot
	Unlock          string // how to end the hold on the command line
}

func (p *Pages) ServeLock(r *app.Request) (app.Answer, error) {
	r, cancel := p.app.WithReadTimeout(r)
	defer cancel()
	lock, err := p.app.ReadLock(r)
	if err != nil {
		return app.Answer{}, err
	}
	if lock.Free() {
		return p.free(r, lock)
	}
	if lock.Row == nil && lock.Ending == nil {
		return p.shared(r, lock)
	}
	v := p.lockPage(r, lock)
	if lock.Ending == nil {
		v.Diagnosis = p.diagnosed(p.Diagnose(r, lock, v.History.past), lock.Viewpoint(r.Viewpoint()))
		p.fillCopies(&v, r, lock.Row)
	}
	v.Cycles = p.cyclesOf(r, v.Name, v.Headline.Class)
	return p.app.Render("lock", v)
}

func (p *Pages) lockPage(r *app.Request, lock *app.Lock) lockPage {
	if lock.Ending != nil {
		return p.endedPage(r, lock)
	}
	c := r.Caller
	row := lock.Row
	at := lock.Viewpoint(r.Viewpoint())
	v := lockPage{lockFrame: p.lockFrame(r, lock), State: row.Display, Purpose: row.Purpose,
		Problems: row.Problems}
	v.AutoRefresh = true
	v.Icon = app.Icon{State: row.Display}
	v.Headline = p.HeadlineOf(r, lock)
	v.Suspected = explainStatement(row.Record, at)
	v.Sentence = holderText(row, at)
	v.Share = protocol.DescribeShare(row.Share())
	v.MultiHolderLock = MultiHolderLockOf(r, row)
	if lock.RequestedHold != "" {
		v.Current = p.app.URLs.Lock(row.Name, row.UUID)
	}
	if row.Alive != nil {
		v.Progress = row.Alive.Progress
	}
	v.Hold = newHoldView(row, at)
	v.Facts = facts(row, lock)
	v.Times = times(row, at)
	if row.Malformed() {
		v.MalformedPolicy = malformedPolicyText(row, p.app.Unlockers())
	}
	v.Clock = clockOff(row.Verdict().ClockOff)
	v.Skew = skewSentence(row, v.Viewpoint.Now)
	p.fillTrace(&v, c, lock)
	v.Commands = p.commands(row)
	v.Links = p.links(row)
	v.Unlock = p.app.Mutexctl("force-unlock", row.Name, app.HoldFlags(row.UUID, "", "")...)
	v.Done = describeRequests(row.Record, v.Viewpoint.Now)
	p.fillAck(&v, r, lock)
	if !lock.IsOutdated(v.Viewpoint) {
		v.Marks = MarkLinks(r, row)
	}
	p.fillForce(&v, r, lock)
	v.Fields = p.fieldViews(c, lock.Document)
	return v
}

// fillTrace adds where in the code the lock was taken, or why that is not shown.
func (p *Pages) fillTrace(v *lockPage, c access.Caller, lock *app.Lock) {
	row := lock.Row
	switch {
	case p.app.WhyNoBacktrace(c, row.Owner) != "":
		v.Hidden = p.app.WhyNoBacktrace(c, row.Owner)
	case lock.ReadError != "":
		if v.Trace = newTraceView(p.traces.Parse(p.traces.Of(row).Text)); v.Trace == nil {
			v.Hidden = "etcd could not be read: " + lock.ReadError + "."
		}
	default:
		v.Trace = newTraceView(p.traces.Parse(lock.Document.Backtrace))
		v.RawTrace = p.app.URLs.Backtrace(row.Name, row.UUID)
	}
}

// fillForce adds the link to the force unlock, or why there is none.
func (p *Pages) fillForce(v *lockPage, r *app.Request, lock *app.Lock) {
	c := r.Caller
	row := lock.Row
	switch {
	case row.Misplaced:
		v.NoForce = "The dashboard cannot remove this record: its keys belong to no lock. Remove it by hand, as " +
			"below, once you know that no process is working under it."
	case !p.app.Config.IsEnabled(protocol.VerbForceUnlock):
	case !c.MaySome(access.Unlock):
		v.NoForce = "Force unlock needs the permission unlock."
	case !c.MayFor(access.Unlock, row.Owner):
		v.NoForce = "You may force-unlock other owners' locks only."
	case lock.IsOutdated(v.Viewpoint):
		v.NoForce = "No force unlock now: etcd does not answer, so what you see may be out of date."
	default:
		v.Force = p.app.URLs.Action("unlock", row.Name, row.UUID, FromView(r))
	}
}

func (p *Pages) ServeBacktrace(r *app.Request) (app.Answer, error) {
	lock, err := p.app.ReadHeldLock(r)
	switch {
	case err != nil:
		return app.Answer{}, err
	case p.app.WhyNoBacktrace(r.Caller, lock.HolderOwner()) != "":
		return app.Answer{}, p.app.AuthorizeFor(r.Caller, access.Backtrace, lock.HolderOwner())
	case lock.ReadError != "":
		return app.Answer{}, &app.HTTPError{Status: http.StatusServiceUnavailable, Code: "stale",
			Title:  "etcd did not answer",
			Detail: "The backtrace could not be read: " + lock.ReadError + ".", Retry: 5 * time.Second}
	case lock.Row == nil || lock.RequestedHold != "" || lock.Document.Backtrace == "":
		return app.Answer{}, &app.HTTPError{Status: http.StatusNotFound, Code: "not_found", Title: "No backtrace",
			Detail: "None is recorded for this hold."}
	}
	return app.Answer{
		Type: "text/plain; charset=utf-8", Body: []byte(lock.Document.Backtrace),
		Header: map[string]string{"Content-Security-Policy": "sandbox; default-src 'none'; frame-ancestors 'none'"},
	}, nil
}
