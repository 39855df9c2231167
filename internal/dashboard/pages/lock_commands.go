package pages

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/stacktrace"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/text"
)

// Command is a line to paste into a shell.
type Command struct{ What, Line string }

// commands are the next steps of somebody who looks into a lock.
func (p *Pages) commands(r *locks.Row) []Command {
	list := FindHolderCommands(r)
	if r.Misplaced {
		return append(list, misplacedCommands(r)...)
	}
	return append(list, Command{"The lock on the command line", p.app.Mutexctl("show", r.Name)},
		Command{"The keys in etcd", "etcdctl get --prefix " + text.ShellOperand(p.app.Config.Layout.Record(r.Name))})
}

// FindHolderCommands returns the commands with which to find the holder. A host whose name ends in a small number may
// be a pod of a StatefulSet or a machine.
func FindHolderCommands(r *locks.Row) []Command {
	var list []Command
	pod, machine := podName(r.Hostname)
	host := text.ShellOperand(r.Hostname)
	if pod {
		list = append(list, Command{"Is the pod alive?", "kubectl get pod " + host},
			Command{"What did it do?", "kubectl logs --since=30m " + host})
	}
	if machine && r.PID != 0 {
		list = append(list, Command{"Is the process alive?", "ssh " + host + " ps -o lstart,args -p " +
			app.NumberOrEmpty(r.PID)})
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

// misplacedCommands show a record at keys that belong to no lock, and remove it unless somebody else holds it by then.
func misplacedCommands(r *locks.Row) []Command {
	keys := r.Name + "/"
	list := []Command{{"The keys in etcd", "etcdctl get --prefix " + text.ShellOperand(keys)}}
	if strings.ContainsAny(keys, "\"\\") ||
		strings.ContainsFunc(keys, func(c rune) bool { return c == unicode.ReplacementChar || !unicode.IsPrint(c) }) {
		return list // the input of a transaction could not say it
	}
	remove := fmt.Sprintf("create(%q) = \"%d\"\n\ndel --prefix %q\n\nget --prefix %q\n\n", keys+lockrecord.FieldUUID,
		r.Token, keys, keys)
	return append(list, Command{"Remove it, if it is still this hold", "etcdctl txn <<< " + text.ShellOperand(remove)})
}

// links are the configured links for a lock, but for those that its record would have lead elsewhere.
func (p *Pages) links(r *locks.Row) []Link {
	list := make([]Link, 0, len(p.app.Config.Links))
	for _, l := range p.app.Config.Links {
		if address := l.URL(r); address != "" {
			list = append(list, Link{l.Text, address})
		}
	}
	return list
}

// traceView is a backtrace as a page shows it: the first frame of own code, what was called from it above, and what led
// to it below, of which the most is folded.
type traceView struct {
	*stacktrace.Trace
	Above *stacktrace.Section
	Below []stacktrace.Section
	Rest  []stacktrace.Section
	More  int // frames in the rest
}

// maxFramesShown is how many frames are shown at first; a folded stretch counts as one. A fold hides at least two.
const maxFramesShown, minFramesFolded = 8, 2

func newTraceView(t *stacktrace.Trace) *traceView {
	if t == nil {
		return nil
	}
	v := &traceView{Trace: t}
	sections := t.Sections
	shown := 0
	if t.First != nil {
		if sections[0].Foreign {
			v.Above = &sections[0]
			sections = sections[1:]
		}
		first := sections[0]
		first.Frames = first.Frames[1:]
		sections = append([]stacktrace.Section{first}, sections[1:]...)
		shown = 1
	}
	for _, s := range sections {
		n := min(len(s.Frames), max(0, maxFramesShown-shown))
		cost := n
		if s.Fold && n > 0 {
			n = len(s.Frames)
			cost = 1
		}
		shown += cost
		if n > 0 {
			v.Below = append(v.Below, stacktrace.Section{Foreign: s.Foreign, Fold: s.Fold, Frames: s.Frames[:n]})
		}
		if rest := s.Frames[n:]; len(rest) > 0 {
			v.Rest = append(v.Rest, stacktrace.Section{Foreign: s.Foreign, Fold: s.Fold, Frames: rest})
			v.More += len(rest)
		}
	}
	if v.More < minFramesFolded {
		v.Below = append(v.Below, v.Rest...)
		v.Rest, v.More = nil, 0
	}
	return v
}
