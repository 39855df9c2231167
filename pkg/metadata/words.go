package metadata

import "cmp"

// These are the words for the states of locks and for the causes of endings. Pages, command line, metrics, JSON, alerts
// and documentation take them from here; colours, icons and columns are defined where they are drawn.

// State is the state of a lock. Package staleness decides which.
type State string

// The states of a lock that is held. A lock is in exactly one of them; an expiring one counts as held, too.
const (
	StateHeld      State = "held"
	StateAlerting  State = "alerting"
	StateExpiring  State = "expiring"
	StateAbandoned State = "abandoned"
	StateExpired   State = "expired"
	StateMalformed State = "malformed"
)

// The states of a lock that nobody holds.
const (
	StateFree      State = "free"
	StateUnclaimed State = "unclaimed" // clients wait, and none takes it
)

// StateWords has a state and its meaning, in sentences.
type StateWords struct {
	State   State
	Meaning string
}

// States returns the states of a held lock, in the order in which they are listed.
func States() []StateWords {
	return []StateWords{
		{StateHeld, "The lock is held, and no deadline has passed."},
		{StateAlerting, "The alert time has passed: the work is taking longer than its holder expected."},
		{StateExpiring, "Held, and auto-unlocked soon unless it is extended: in the last fifth of its time, two " +
			"minutes at most. Such a lock is also counted as held; one that alerts is never called expiring."},
		{StateAbandoned, "A witness has proof that the holder has ended: its process, container, pod or machine. " +
			"It alerts at once."},
		{StateExpired, "The auto-unlock time has passed and the lock is still there: auto-unlock is paused, " +
			"or no unlocker is running."},
		{StateMalformed, "A field that the protocol acts on is missing or cannot be read."},
	}
}

// Urgency ranks states: 0 is the most urgent.
func (s State) Urgency() int {
	switch s {
	case StateExpired:
		return 0
	case StateAbandoned:
		return 1
	case StateAlerting, StateUnclaimed:
		return 2
	case StateMalformed:
		return 3
	case StateExpiring:
		return 4
	}
	return 5
}

// Compare orders states by urgency.
func (s State) Compare(other State) int { return cmp.Compare(s.Urgency(), other.Urgency()) }

// Causes of an [Ending], as in etcd. The first two are never written there. Clients use the same words for why a hold
// was lost.
const (
	EndingReleased     = "released"
	EndingYielded      = "yielded"       // released by its holder after it was asked to finish
	EndingAutoUnlocked = "auto_unlocked" // by an unlocker, past its deadline
	EndingAbandoned    = "abandoned"     // by an unlocker, because a witness had proof that its holder had ended
	EndingForced       = "forced"        // by an operator
	EndingLeaseEnded   = "lease_ended"   // of another library's lock, and never written either
)

// EndingWords has the words for the cause of an ending.
type EndingWords struct {
	Cause  string // as in etcd
	Word   string // everywhere else
	Verb   string // in a sentence that continues with who did it
	Remark string // what the word leaves out; may be empty
}

// Endings returns the words for all causes of endings.
func Endings() []EndingWords {
	return []EndingWords{
		{EndingReleased, "released", "released", ""},
		{EndingYielded, "yielded", "released", "released on request"},
		{EndingAutoUnlocked, "auto-unlocked", "auto-unlocked", ""},
		{EndingAbandoned, "abandoned", "auto-unlocked as abandoned", ""},
		{EndingForced, "force-unlocked", "force-unlocked", ""},
	}
}

// EndingWordsFor returns the words for the cause of an ending, and whether it is known. An unknown one becomes the
// Verb: escape it.
func EndingWordsFor(cause string) (EndingWords, bool) {
	leaseEnded := EndingWords{EndingLeaseEnded, "lease-ended", "ended with its lease", ""}
	for _, words := range append(Endings(), leaseEnded) {
		if words.Cause == cause {
			return words, true
		}
	}
	return EndingWords{Cause: cause, Word: "ended", Verb: cmp.Or(cause, "ended")}, false
}
