package pages

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/phrase"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// fact is a line about a hold; its value may come from the record and is shown with care.
type fact struct{ Label, Value string }

// timeFact is an instant in the life of a hold.
type timeFact struct {
	Label string
	Time  *phrase.Moment
	Note  string
}

func facts(r *locks.Row, v *site.Lock) []fact {
	list := []fact{
		{"owner", r.Owner}, {"host", r.Hostname}, {"pid", site.Number(r.PID)}, {"hold", r.UUID},
		{"fencing token", site.Number(r.Token)},
		{"record revision", site.Number(r.Revision)}, {"written by", v.Document.Client},
		{"extended", extended(v.Document.Fields)},
	}
	if p := r.Process; p != nil {
		pod := p.PodName
		if pod != "" && p.PodNamespace != "" {
			pod = p.PodNamespace + "/" + pod
		}
		list = append(list, fact{"pod", pod}, fact{"container", p.Container}, fact{"boot", p.BootID})
	}
	for _, name := range slices.Sorted(maps.Keys(r.Attributes)) {
		list = append(list, fact{name, fmt.Sprint(r.Attributes[name])})
	}
	return slices.DeleteFunc(list, func(f fact) bool { return f.Value == "" })
}

// extended is how often the holder moved the deadline: each time writes its key once more.
func extended(fields []metadata.Field) string {
	if n := extensions(fields); n > 0 {
		return phrase.Plural(n, "time", "times")
	}
	return ""
}

func extensions(fields []metadata.Field) int {
	for _, f := range fields {
		if f.Name == metadata.FieldAutoUnlockAt {
			return int(max(0, f.Version-1))
		}
	}
	return 0
}

// rhythm is how often the holder extended so far, on average; 0 = not known.
func rhythm(r *locks.Row, fields []metadata.Field) time.Duration {
	n := extensions(fields)
	if n < 2 || r.Alive == nil || r.LockedAt.IsZero() { // of one extension nobody knows a rhythm
		return 0
	}
	return r.Alive.At.Sub(r.LockedAt) / time.Duration(n)
}

func times(r *locks.Row, at phrase.Viewpoint) []timeFact {
	var list []timeFact
	add := func(label string, m *phrase.Moment, note string) {
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
	add("alert", at.AlertOf(r.Record, r.Verdict), byPolicy(r.AlertAt))
	add("auto-unlock", at.Next(r.Verdict.AutoUnlockAt), byPolicy(r.AutoUnlockAt))
	return list
}

// Command is a line to paste into a shell.
type Command struct{ What, Line string }

// commands are the next steps of somebody who looks into a lock.
func (d *Pages) commands(r *locks.Row) []Command {
	list := Whereabouts(r)
	if r.Misplaced {
		return append(list, misplacedCommands(r)...)
	}
	list = append(list, Command{"The lock on the command line", "mutexctl show " + site.Shell(r.Name)})
	if d.Config.Layout.Prefix() != "" {
		list = append(list, Command{"The keys in etcd",
			"etcdctl get --prefix " + site.Shell(d.Config.Layout.Record(r.Name))})
	}
	return list
}

// Whereabouts are the commands that look for the holder. A host whose name ends in a small number may be a pod of a
// StatefulSet or a machine.
func Whereabouts(r *locks.Row) []Command {
	var list []Command
	pod, machine := podName(r.Hostname)
	host := site.Shell(r.Hostname)
	if pod {
		list = append(list, Command{"Is the pod alive?", "kubectl get pod " + host},
			Command{"What did it do?", "kubectl logs --since=30m " + host})
	}
	if machine && r.PID != 0 {
		list = append(list, Command{"Is the process alive?", "ssh " + host + " ps -o lstart,args -p " +
			site.Number(r.PID)})
	}
	return list
}

// podName reports whether a host may be a pod, by how Kubernetes names those that it makes, and whether it may be a
// machine.
func podName(host string) (pod, machine bool) {
	const suffixes, suffixLength, maxOrdinal = "bcdfghjklmnpqrstvwxz2456789", 5, 3
	i := strings.LastIndexByte(host, '-')
	if i < 1 {
		return false, host != ""
	}
	switch end := host[i+1:]; {
	case len(end) == suffixLength && strings.Trim(end, suffixes) == "":
		return true, false
	case end != "" && len(end) <= maxOrdinal && strings.Trim(end, "0123456789") == "":
		return true, true
	}
	return false, true
}

// misplacedCommands show a record at the keys of no lock, and remove it unless somebody else holds it by then.
func misplacedCommands(r *locks.Row) []Command {
	keys := r.Name + "/"
	list := []Command{{"The keys in etcd", "etcdctl get --prefix " + site.Shell(keys)}}
	if strings.ContainsAny(keys, "\"\\") ||
		strings.ContainsFunc(keys, func(c rune) bool { return c == unicode.ReplacementChar || !unicode.IsPrint(c) }) {
		return list // the input of a transaction could not say it
	}
	remove := fmt.Sprintf("create(%q) = \"%d\"\n\ndel --prefix %q\n\nget --prefix %q\n\n", keys+metadata.FieldUUID,
		r.Token, keys, keys)
	return append(list, Command{"Remove it, if it is still this hold", "etcdctl txn <<< " + site.Shell(remove)})
}

// links are the configured links for a lock, but for those that its record would have lead elsewhere.
func (d *Pages) links(r *locks.Row) []choice {
	list := make([]choice, 0, len(d.Config.Links))
	for _, l := range d.Config.Links {
		if address := l.To(r); address != "" {
			list = append(list, choice{l.Text, address})
		}
	}
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

func (d *Pages) fieldViews(c access.Caller, doc metadata.Document) []fieldView {
	views := make([]fieldView, 0, len(doc.Fields))
	left := maxFieldsBytes
	for _, f := range doc.Fields {
		v := fieldView{Key: f.Name, Value: f.Value, Bytes: len(f.Value), Created: f.CreateRevision,
			Changed: f.ModRevision}
		if Hidden(c, doc.Owner, f.Name) {
			continue
		}
		if d.Config.Layout.Prefix() != "" {
			v.Key = d.Config.Layout.Field(doc.Name, f.Name)
		}
		if most := min(maxFieldBytes, left); len(v.Value) > most {
			v.Value, v.Cut = v.Value[:most], true
		}
		left -= len(v.Value)
		v.Escaped = text.Visible(v.Value) != v.Value
		views = append(views, v)
	}
	return views
}

// Hidden reports whether the field may hold a backtrace, and the caller may not see those.
func Hidden(c access.Caller, owner, field string) bool {
	return !c.MayFor(access.Backtrace, owner) && (field == metadata.FieldBacktrace || field == metadata.FieldMetadata)
}
