package actions

import (
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/pages"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
)

// gentlePage asks for what takes nothing away from the holder: a request to finish, more time for it, or that somebody
// looks at the lock.
type gentlePage struct {
	site.Page
	Name      string
	Shown     string // the name in visible characters
	Look      locks.DisplayState
	Blocked   phrase.Sentence // who waits
	Sentence  phrase.Sentence
	Purpose   string
	Alive     *phrase.Moment
	Progress  string
	Done      []string // what was done to the hold before
	Words     gentleWords
	Choices   []timeChoice // empty where no time is needed
	Own       string       // time of one's own choice
	OwnChosen bool
	Token     int64
	Revision  int64
	Hold      string
	Reason    string
	Required  bool // the reason is
	Ticket    string
	Wrong     *FieldError
	Action    string // where the form goes
	Cancel    string
	MaxReason int
	MaxTicket int

	// An acknowledgement that is there, and may be withdrawn.
	Withdraw     int64 // its revision; 0 = there is none
	Acknowledger string
}

// gentleWords are the words of a form.
type gentleWords struct {
	Title   string // before the name of the lock
	Tab     string // the same in the title of the tab
	Effects []string
	HowLong string // the question for the time; empty where none is needed
	Why     string // the question for the reason
	Do      string // the button
}

// timeChoice is an amount of time that can be given with one click.
type timeChoice struct {
	Value, Text string
	Chosen      bool
}

// otherTime is the choice of an amount that is typed.
const otherTime = "own"

// gentleForm asks whether, and why.
func (o *Operation) gentleForm(r *site.Request, lock *site.Lock, typed Request, _ string,
	wrong *FieldError) (site.Answer, error) {
	row := lock.Row
	from := pages.FromView(o.site.URLs, r)
	v := gentlePage{Page: o.site.Page(r, o.words.Tab+" "+row.Name), Name: row.Name, Shown: text.Visible(row.Name),
		Look:    row.Display,
		Purpose: row.Purpose, Token: row.Token, Revision: row.Revision, Hold: row.UUID, Words: o.words,
		Action: o.site.URLs.Act(o.page, row.Name, row.UUID, from),
		Cancel: o.site.URLs.LockFrom(row.Name, row.UUID, from),
		Reason: site.BoxText(oneLine(typed.Reason)), Ticket: site.BoxText(oneLine(typed.Ticket)), Wrong: wrong,
		MaxReason: site.MaxReason, MaxTicket: site.MaxTicket, Required: o.minReason > 0,
		Done: pages.DoneTo(row.Record, r.Now)}
	v.Here = "list"
	v.Follows = true
	v.Icon = site.Icon{Look: row.Display}
	v.Blocked = pages.WaitingSentence(locks.QueueOf(lock.InLine), v.Viewpoint, o.site.Config.Waiters != nil)
	unlockers, _ := o.site.Unlockers()
	v.Sentence = pages.HolderSentence(row, v.Viewpoint, lock.Document.Fields, unlockers)
	if row.Alive != nil {
		v.Alive = v.Age(row.Alive.At)
		v.Progress = row.Alive.Progress
	}
	if o.checkTime != nil {
		v.fillTimes(typed.More)
	}
	if now := row.Acknowledged; now != nil && o == o.Acknowledge {
		v.Withdraw = now.Revision
		v.Acknowledger = protocol.Acknowledger(now)
	}
	err := o.possibleNow(row, r)
	if err != nil {
		return site.Answer{}, err
	}
	return o.site.Render("gentle", v)
}

// possibleNow refuses the form where it could not do anything.
func (o *Operation) possibleNow(row *locks.Row, r *site.Request) error {
	a := protocol.Action{Seconds: 1}
	a.At.Time = r.Now
	if err := o.possible(row.Record, a); err != nil {
		return notPossible(err.Error())
	}
	return nil
}

// fillTimes offers amounts of time. What was typed before stays chosen.
func (v *gentlePage) fillTimes(typed string) {
	v.OwnChosen = typed != ""
	for _, c := range []timeChoice{{"15m", "15 minutes", false}, {"30m", "30 minutes", false}, {"1h", "1 hour", false},
		{"2h", "2 hours", false}} {
		if c.Chosen = c.Value == typed || typed == "" && c.Value == "30m"; c.Chosen && typed != "" {
			v.OwnChosen = false
		}
		v.Choices = append(v.Choices, c)
	}
	if v.OwnChosen && typed != otherTime {
		v.Own = site.BoxText(typed)
	}
}
