package headline

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// isMutexctlRun reports whether the holder is mutexctl run, whose command does the work.
func isMutexctlRun(r *metadata.Record) bool { return r.Process != nil && r.Process.CgroupID != 0 }

// lookCommands show what the holder and its children do, as far as its record says where they run. A holder that
// reported is probably there, so that what it did comes first.
func lookCommands(r *metadata.Record) (list []string) {
	pod, machine := podOrMachine(r)
	if pod != "" {
		list = append(list, "kubectl get pod "+pod, "kubectl logs --since=30m "+pod)
		if r.Alive != nil && !diagnosis.IsSuspected(r) {
			slices.Reverse(list)
		}
	}
	if pid := strconv.FormatInt(r.PID, 10); machine && r.PID != 0 {
		list = append(list, "ssh "+text.ShellOperand(r.Hostname)+" ps -o pid,stat,etime,args -p "+pid+" --ppid "+pid)
	}
	return list
}

func endCommands(r *metadata.Record) (list []string) {
	pod, machine := podOrMachine(r)
	if pod != "" {
		list = append(list, "kubectl delete pod "+pod)
	}
	if machine && r.PID != 0 {
		list = append(list, "ssh "+text.ShellOperand(r.Hostname)+" kill "+strconv.FormatInt(r.PID, 10))
	}
	return list
}

// podOrMachine returns the operand of kubectl for the pod that the holder may run in, and whether it may run on a
// machine: as its record says, or else as Kubernetes names pods.
func podOrMachine(r *metadata.Record) (pod string, machine bool) {
	if p := r.Process; p != nil && p.PodName != "" {
		if p.PodNamespace != "" {
			pod = "-n " + text.ShellWord(p.PodNamespace) + " "
		}
		return pod + text.ShellOperand(p.PodName), false
	}
	const suffixes, suffixLength, maxOrdinal = "bcdfghjklmnpqrstvwxz2456789", 5, 3
	host := text.ShellOperand(r.Hostname)
	i := strings.LastIndexByte(r.Hostname, '-')
	if i < 1 {
		return "", r.Hostname != ""
	}
	switch end := r.Hostname[i+1:]; {
	case len(end) == suffixLength && strings.Trim(end, suffixes) == "":
		return host, false
	case end != "" && len(end) <= maxOrdinal && strings.Trim(end, "0123456789") == "":
		return host, true
	}
	return "", true
}

// misplacedCommands show a record at keys that belong to no lock, and remove it unless another holds it by then.
func misplacedCommands(r *metadata.Record) []string {
	keys := r.Name + "/"
	list := []string{"etcdctl get --prefix " + text.ShellOperand(keys)}
	if strings.ContainsAny(keys, "\"\\") ||
		strings.ContainsFunc(keys, func(c rune) bool { return c == unicode.ReplacementChar || !unicode.IsPrint(c) }) {
		return list // the input of a transaction could not say it
	}
	remove := fmt.Sprintf("create(%q) = \"%d\"\n\ndel --prefix %q\n\nget --prefix %q\n\n", keys+lockrecord.FieldUUID,
		r.Token, keys, keys)
	return append(list, "etcdctl txn <<< "+text.ShellOperand(remove))
}
