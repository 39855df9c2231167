package pages

import (
	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/stacktrace"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// lockFrame is what is around every page about a lock.
type lockFrame struct {
	app.Page
	Name          string
	Delays        delaysView
	Usually       string // how long it is usually held; empty if too few holds are known
	Queue         QueueView
	ReadError     string // why etcd could not be read
	HoldRequested bool   // and it is not the current one
	History       lockHistory
	Chart         *chart
}

func (p *Pages) lockFrame(r *app.Request, lock *app.Lock) lockFrame {
	f := lockFrame{Page: p.app.Page(r, lock.Name), Name: lock.Name,
		Delays: p.delaysOf(r, lock.Name), History: p.lockHistory(r, lock)}
	all, incompleteBefore := p.app.LockIntervals(r, lock, f.History.past)
	if takes, seen := p.usualHold(r, f.History.past); seen != "" {
		f.Usually = "Usually takes " + takes + " (" + seen + ")"
	}
	f.Chart = p.lockChart(r, lock, all, incompleteBefore)
	f.NavEntry = "list"
	f.Queue = NewQueueView(lock.Waiters, maxWaiters, f.Viewpoint)
	f.ReadError = lock.ReadError
	f.HoldRequested = lock.RequestedHold != ""
	f.JSON = p.app.URLs.LockAPI(lock.Name)
	return f
}

type lockPage struct {
	lockFrame
	State    metadata.State
	Head     Head
	Figures  []keyFigure
	Steps    []StepView
	Runbook  string // of the alert; empty: none
	Facts    []fact
	Times    []timeFact
	Problems []metadata.Problem
	Clock    string // the holder's clock, where it is off
	Trace    *stacktrace.Trace
	Hidden   string   // why there is no backtrace
	Commands []string // that show the record
	Links    []Link
	Incident string // what is the matter, to be copied
	Fields   []fieldView
	Ended    *endedView
	Free     bool         // nobody holds the lock any more
	Sentence app.RichText // who holds it now, if the hold has ended
	Purpose  string       // of the hold that has ended
	Done     []string     // what operators did to that, in sentences
	Cycles   []cycleView
	Current  string // link to the current hold when another was asked for
	Ack      ackView
}

func (p *Pages) ServeLock(r *app.Request) (app.Answer, error) {
	r, cancel := p.app.WithReadTimeout(r)
	defer cancel()
	lock, err := p.app.ReadLock(r)
	if err != nil {
		return app.Answer{}, err
	}
	if lock.Free() {
		return p.serveFree(r, lock)
	}
	if lock.Row == nil && lock.Ending == nil {
		return p.serveShared(r, lock)
	}
	v := p.lockPage(r, lock)
	if lock.Ending == nil {
		v.Incident = p.incident(&v, r, lock.Row)
	}
	v.Cycles = p.cyclesOf(r, v.Name, v.Head.Said.Class)
	return p.app.Render("lock", v)
}

func (p *Pages) lockPage(r *app.Request, lock *app.Lock) lockPage {
	if lock.Ending != nil {
		return p.endedPage(r, lock)
	}
	c := r.Caller
	row := lock.Row
	at := lock.Viewpoint(r.Viewpoint())
	v := lockPage{lockFrame: p.lockFrame(r, lock), State: row.StateIn(r.Snapshot().Class(row)),
		Problems: row.Problems}
	v.AutoRefresh = true
	v.Icon = v.State
	v.Head = p.NewHead(r, lock, v.History.past)
	v.Figures = p.figures(r, lock, v.History.past)
	v.Steps = p.StepViews(r, lock, row, &v.Head.Said.Headline)
	v.Runbook = v.Head.Said.Runbook()
	if lock.RequestedHold != "" {
		v.Current = p.app.URLs.Lock(row.Name, row.UUID)
	}
	v.Facts = facts(row, lock)
	input := p.headlineInput(r)
	v.Times = timeFacts(row, at, &input)
	v.Clock = clockOffText(row.ClockOff)
	p.fillTrace(&v, c, lock)
	if !row.Misplaced {
		v.Commands = []string{text.Mutexctl("show", row.Name, "--raw"),
			"etcdctl get --prefix " + text.ShellOperand(p.app.Config.Layout.Record(row.Name))}
	}
	v.Links = p.links(row)
	p.fillAck(&v, r, lock)
	v.Fields = p.fieldViews(c, lock.FullRecord)
	return v
}

// fillTrace adds where in the code the lock was taken, or why that is not shown.
func (p *Pages) fillTrace(v *lockPage, c access.Caller, lock *app.Lock) {
	row := lock.Row
	switch {
	case p.app.WhyNoBacktrace(c, row.Owner) != "":
		v.Hidden = p.app.WhyNoBacktrace(c, row.Owner)
	case lock.ReadError != "":
		v.Hidden = "etcd could not be read: " + lock.ReadError + "."
	default:
		v.Trace = p.app.Traces.Parse(lock.FullRecord.Backtrace)
	}
}
