package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

type health struct {
	status       int
	counts       *locks.Counts
	waiters      int
	unlockers    int
	alarms       []string // of etcd
	headline     string   // the most urgent problem of the locks
	nothingWrong bool     // headline says that there is no problem, or what findings say
	findings     []string // sentences about other problems
}

func (h *health) raise(status int) { h.status = max(h.status, status) }

// addFinding adds a sentence about a problem that headline does not cover.
func (h *health) addFinding(status int, format string, args ...any) {
	h.raise(status)
	h.findings = append(h.findings, fmt.Sprintf(format, args...)+".")
}

func (o *checkOptions) judge(all *snapshot, some *locks.Snapshot) *health {
	h := &health{counts: &some.Totals, unlockers: len(all.unlockers)}
	for _, alarm := range all.alarms {
		h.raise(pluginCritical)
		h.alarms = append(h.alarms, alarm+".")
	}
	if !o.noUnlocker {
		o.judgeUnlockers(h, all.unlockers)
	}
	h.judgeConsistency(some)
	o.judgeLocks(h, some)
	for _, queue := range some.Queues {
		h.waiters += len(queue)
	}
	switch {
	case exceeds(h.waiters, o.critWaiting):
		h.addFinding(pluginCritical, "%s for locks", waitingText(h.waiters))
	case exceeds(h.waiters, o.warnWaiting):
		h.addFinding(pluginWarning, "%s for locks", waitingText(h.waiters))
	}
	return h
}

func exceeds(n, threshold int) bool { return threshold != noThreshold && n > threshold }

func (o *checkOptions) judgeUnlockers(h *health, all []metadata.Presence) {
	switch {
	case len(all) == 0:
		h.raise(pluginCritical)
	case len(diagnosis.HeldBackBy(all, staleness.RuleGap, staleness.RuleUnverified)) > 0,
		len(diagnosis.Disagreements(all)) > 0:
		h.raise(pluginWarning)
	}
	now := o.app.Now()
	for _, p := range all {
		behind := now.Sub(p.Now.Time)
		switch {
		case -behind > o.clockDifference:
			h.addFinding(pluginWarning, "The clock of unlocker %s is %s ahead of this machine's", shortText(p.ID),
				text.Duration(-behind))
		case behind > o.clockDifference+protocol.PresenceTTL:
			h.addFinding(pluginWarning, "The clock of unlocker %s is %s behind this machine's", shortText(p.ID),
				text.Duration(behind))
		}
	}
}

// judgeConsistency reports locks in a state that no client leaves behind.
func (h *health) judgeConsistency(some *locks.Snapshot) {
	found := some.Inconsistent
	for _, l := range found[:min(len(found), maxNamed)] {
		waiting := ""
		if n := len(some.Queues[l.Name]); n > 0 {
			waiting = fmt.Sprintf(" (%s)", waitingText(n))
		}
		h.addFinding(pluginWarning, "%v%s", l, waiting)
	}
	if more := len(found) - maxNamed; more > 0 {
		h.addFinding(pluginWarning, "%s inconsistent", text.Count(more, "more lock"))
	}
}

func (o *checkOptions) judgeLocks(h *health, some *locks.Snapshot) {
	now := o.app.Now()
	clocksOff := 0
	for _, r := range some.Rows {
		if clock := clockAhead(r.Judgement); clock != "" && clocksOff < maxNamed {
			clocksOff++
			h.addFinding(pluginWarning, "The clock of %s, who holds %s, is %s", holderText(r.Record),
				text.Visible(r.Name), clock)
		}
		switch r.State {
		case metadata.StateExpired:
			h.raise(pluginWarning)
			if now.Sub(r.DueUnlock()) > o.expiredAfter && !some.Combined.Excludes(r.Name) {
				h.raise(pluginCritical)
			}
		case metadata.StateAbandoned:
			h.raise(pluginWarning)
		}
	}
	switch n := some.Totals.Total - some.Totals.In(metadata.StateHeld); {
	case exceeds(n, o.critAlerting):
		h.raise(pluginCritical)
	case exceeds(n, o.warnAlerting):
		h.raise(pluginWarning)
	}
}

// sentence returns the part of the line for people: etcd's alarms, the headline, other findings. A headline that
// nothing is wrong is left out if there are any.
func (h *health) sentence() string {
	first := []string{h.headline}
	others := h.findings
	if h.nothingWrong && len(h.alarms)+len(others) > 0 {
		first = nil
		others = append(others, text.Count(h.counts.In(metadata.StateHeld), "lock")+" on time.")
	}
	all := slices.Concat(h.alarms, first, others)
	return replaceBars([]string{"OK", "WARNING", "CRITICAL"}[h.status] + ": " + strings.Join(all, " "))
}

// performance returns the part of the line for graphs: label=value;warn;crit;min;max.
func (h *health) performance(o *checkOptions) string {
	datum := func(label string, n, warn, crit int) string {
		return fmt.Sprintf("%s=%d;%s;%s;0;", label, n, threshold(warn), threshold(crit))
	}
	var data []string
	for _, state := range staleness.States() {
		warn := noThreshold
		crit := noThreshold
		if state == metadata.StateAlerting {
			warn = o.warnAlerting
			crit = o.critAlerting
		}
		data = append(data, datum(string(state), h.counts.In(state), warn, crit))
	}
	return strings.Join(append(data, datum("waiters", h.waiters, o.warnWaiting, o.critWaiting),
		datum("unlockers", h.unlockers, noThreshold, noThreshold)), " ")
}

func threshold(n int) string {
	if n == noThreshold {
		return ""
	}
	return fmt.Sprint(n)
}

// replaceBars replaces bars in text: a bar starts the performance data.
func replaceBars(s string) string { return strings.ReplaceAll(s, "|", "/") }

// maxNamed is how many locks or unlockers a sentence names.
const maxNamed = 3
