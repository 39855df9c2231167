package lockjson

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// Line describes related members of a shape. The line of a time also covers its distance in seconds.
type Line struct {
	Members string // separated by comma and blank
	Text    string
}

// Shape is a documented JSON object.
type Shape struct {
	Title string
	Of    any // a value of the Go type
	Lines []Line
}

// either returns a list of words: "a, b or c".
func either[T any](all []T) string {
	words := make([]string, len(all))
	for i, word := range all {
		words[i] = fmt.Sprint(word)
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// endings returns the words for how a hold ended, some with a remark.
func endings() (words []string) {
	for _, e := range metadata.Endings() {
		word := e.Word
		if e.Remark != "" {
			word += " (" + e.Remark + ")"
		}
		words = append(words, word)
	}
	return words
}

// Shapes returns the documented objects.
func Shapes() []Shape {
	return []Shape{
		{"A lock", Lock{}, []Line{
			{"name", "the lock's name; bytes that are not UTF-8 are replaced"},
			{"name_base64", "the exact bytes of a name that is not UTF-8; else absent"},
			{"state", either(append(staleness.States(), locks.LeasedState)) + "; null when nobody holds the lock"},
			{"expiring", "whether a held lock is auto-unlocked soon"},
			{"uuid, token", "the hold's identity and its fencing token"},
			{"revision", "the highest revision of the record's keys"},
			{"owner, hostname, pid, purpose", "as the holder recorded them"},
			{"locked_at", "when the lock was taken, by the holder's clock"},
			{"alert_at, auto_unlock_at", "when the lock alerts, and when it is removed, if nothing changes"},
			{"alive_at, progress", "the last sign of life and its note"},
			{"attributes", "an object of text, numbers and booleans"},
			{"problems", "a list of {field, reason, text}; empty for a sound record"},
			{"waiters", "how many wait for the lock; for a share, for the shared lock"},
			{"longest_waiting_since", "since when the longest of them has been waiting"},
			{"kind", "semaphore, shared or exclusive; null for an ordinary lock"},
			{"share_of", `the shared lock: "pool" for "pool#2"; null for a whole lock`},
			{"permits, limit", "of a semaphore: the holder's permits, and how many there are"},
			{"clock_offset_seconds", "how far the holder's clock is ahead, negative when behind; null when unknown"},
			{"process", "which process holds the lock; null when the record does not say"},
			{"death", "a witness's proof that the holder has ended; null when there is none"},
			{"suspicion", "a witness's suspicion of it, without proof; null when there is none"},
			{"asked", "the request to the holder to finish; null when there is none"},
			{"extended", "who gave the holder more time; null when nobody did"},
			{"acknowledged", "who looks at the lock now; null when nobody does"},
			{"heartbeat_until", "until when heartbeats extend the lock; null when the record does not say"},
			{"leased", "of a lock of another library, in the state leased; else absent"},
			{"url", "the page of the hold; only the page's API has it"},
		}},
		{"A process", Process{}, []Line{
			{"boot_id, process_start, pid_namespace", "the machine's boot, and which of its processes it is"},
			{"supervisor_start, cgroup_id", "in place of process_start: the process runs a command, in this cgroup, " +
				"which may outlive it"},
			{"pod_namespace, pod_name, pod_uid, container", "in Kubernetes"},
			{"detached", "whether the work outlives the process, whose end then proves nothing"},
		}},
		{"A statement", Statement{}, []Line{
			{"cause, how", "why the witness says so: a word of the protocol, and a sentence"},
			{"ended_at", "when the holder ended, by the witness's clock"},
			{"exit_code, signal, detail", "how it ended, where known: 137, SIGKILL, OOMKilled"},
			{"witness, by", "host or kubernetes, and which instance"},
			{"at", "when the witness wrote this"},
			{"believed", "whether the holder counts as dead for it"},
			{"disputed", "whether the holder called alive since"},
			{"unlock_at", "when unlockers remove the lock for it; null when they do not, or when unknown"},
		}},
		{"A request to finish", Asked{}, []Line{
			{"by, source", "who asks, and where that name comes from: cli, basic, mtls, header, or waiter"},
			{"at", "when, by the asker's clock"},
			{"reason", "why"},
			{"answered", "whether the holder called alive since; progress is then its answer; null in an ending"},
		}},
		{"More time", Extended{}, []Line{
			{"by, source", "who gave it, and where that name comes from: cli, basic, mtls or header"},
			{"at", "when, by that person's clock"},
			{"reason", "why"},
			{"seconds", "how much time was given"},
			{"auto_unlock_at", "the deadline before that"},
		}},
		{"An acknowledgement", Acknowledged{}, []Line{
			{"by, source", "who looks at it, and where that name comes from: cli, basic, mtls or header"},
			{"at, until", "since when, and until when at most, by that person's clock"},
			{"note", "what they wrote; null when nothing"},
		}},
		{"A lock of another library", Leased{}, []Line{
			{"key, lease", "of the holder; the lease in hex"},
			{"single_key", "whether it is one key with a lease, which need not be a lock, and not a queue"},
			{"ttl_seconds, ends_at", "how long the lease lasts, and its end unless it is kept alive; null if unread"},
		}},
		{"One lock in full, beside the members of a lock", Document{}, []Line{
			{"headline", "what a person must know first about the lock; null when there is nothing"},
			{"client", "the client library that wrote the record"},
			{"diagnosis", "the holder's probable condition; null when too little is known"},
			{"usual_hold", "{seconds, holds}: the median length of the holds that the dashboard saw released, " +
				"and their number; absent below three; only the page's API has it"},
			{"backtrace", "where in the code the lock was taken; absent when unknown or not asked for"},
			{"queue", "the waiters in their order, at most 1,000; how many there are is in waiters"},
			{"holders", "the holds of a shared lock, each as a lock, at most 1,000, the most urgent " +
				"first; else absent"},
			{"delays", "the lock delays after ended holds of this lock, at most 1,000; absent when there are none"},
			{"holder_count, delay_count", "how many there are in all; absent with the list"},
			{"fields", "each key of the record; absent unless asked for"},
			{"ending", "how the last removed hold of a free lock ended; on the page's API: how the " +
				"requested hold ended"},
			{"unread", "why etcd could not be read and members are missing; only the page's API has it"},
		}},
		{"A headline", Headline{}, []Line{
			{"class", "what it is about: " + either(locks.Classes()) + "; of several the first"},
			{"severity", "system, bad, alerting, warn or calm"},
			{"sentence", "the headline as text"},
			{"lock", "the lock that it is about; null when it is about none"},
			{"next", "the next step: status, runbook, cycle, look, force_unlock, more_time or problems; null for none"},
			{"command", "that step as a command, or the address of a runbook; null for none"},
		}},
		{"A diagnosis", Diagnosis{}, []Line{
			{"holder", "dead, probably_dead, waiting (for another lock), slow or working; dead only with proof"},
			{"why", "the reason, in a sentence"},
		}},
		{"A lock delay", Delay{}, []Line{
			{"name", "the lock, or the share of it, whose hold was ended"},
			{"name_base64", "the exact bytes of a name that is not UTF-8; else absent"},
			{"uuid, token", "the hold that was ended"},
			{"revision", "the revision of the delay's key, to name this delay"},
			{"owner, hostname, purpose", "as the former holder recorded them"},
			{"permits", "of a semaphore: how many that hold had; they are not free yet"},
			{"how, by", "auto-unlocked or force-unlocked; by which unlocker or operator"},
			{"ended_at", "when the hold was ended"},
			{"seconds", "the least duration of the delay"},
			{"until", "when it is over, at the earliest; null when the key has no lease and stays"},
		}},
		{"A waiter", Waiter{}, []Line{
			{"uuid", "identifies the attempt, and later the hold"},
			{"owner, hostname, pid, purpose", "as the waiter recorded them"},
			{"since, timeout_at", "when the wait began, and when it times out"},
			{"under", "the uuids of the holds under which the waiter works; absent when there are none"},
		}},
		{"A field", Field{}, []Line{
			{"name", "the last part of the key"},
			{"value, value_base64", "the value as text, or as base64 when it is not UTF-8"},
			{"create_revision, mod_revision", "of the key in etcd"},
		}},
		{"An ending", Ending{}, []Line{
			{"name, name_base64, uuid, token", "the hold, as in a lock"},
			{"owner, hostname, pid, purpose", "as the holder recorded them"},
			{"locked_at, alert_at, auto_unlock_at", "as they stood at the end"},
			{"alive_at, progress", "the last sign of life and its note"},
			{"attributes", "an object of text, numbers and booleans"},
			{"ended_at", "when the hold ended"},
			{"how", either(endings()) + "; null when unknown"},
			{"by, why", "who ended it for the holder, and for what reason"},
			{"asked", "the last request to the holder to finish; null when there was none"},
			{"extended", "who gave the holder more time last; null when nobody did"},
			{"acknowledged", "who looked at the lock when the hold ended; null when nobody did"},
		}},
		{"An interval", Interval{}, []Line{
			{"name, name_base64", "the lock, or the share of it, as in a lock"},
			{"share_of", "the shared lock; null for a whole lock"},
			{"wait", "whether this is a wait for the lock instead of a hold"},
			{"uuid, token", "the hold, as in a lock; null for a wait"},
			{"owner, hostname, pid", "who held or waited; owner and hostname are cut to 80 bytes"},
			{"began_at, ended_at", "when it began and ended; null when unknown, ended_at also while it lasts"},
			{"alert_at", "the alert of a hold; null for a wait, and when there is none"},
			{"how", "of a hold that is over, as in an ending; of a wait that is over, taken or gave_up; else null"},
		}},
	}
}

// ShapeOf returns the description of an object.
func ShapeOf(object any) Shape {
	all := Shapes()
	return all[slices.IndexFunc(all, func(s Shape) bool { return reflect.TypeOf(s.Of) == reflect.TypeOf(object) })]
}

// Help returns the shape for a help text.
func (s Shape) Help() string {
	width := 0
	for _, l := range s.Lines {
		width = max(width, len(l.Members))
	}
	lines := make([]string, len(s.Lines))
	for i, l := range s.Lines {
		lines[i] = fmt.Sprintf("  %-*s  %s", width, l.Members, l.Text)
	}
	return strings.Join(lines, "\n")
}

// Conventions hold for every object; a help text quotes them.
const Conventions = `Members are added over time and never change their meaning. Unknown values
are null. Times are RFC 3339 in UTC, and each is followed by the same in seconds from now, negative
in the past: alert_at by alert_at_in_seconds. Tokens and revisions are text, because JavaScript loses
the digits of large numbers.`
