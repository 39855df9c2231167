package main

import (
	"fmt"
	"strings"

	"github.com/clustermutex/unlocker/bench/contest"
	"github.com/clustermutex/unlocker/bench/stats"
)

// The contestants of targets.
const (
	rawLimit = "raw put and delete"
	shared   = "etcd Mutex, session shared"
	perLock  = "etcd Mutex, session per lock"
)

// verdict is a target and what was measured.
type verdict struct {
	target string
	got    float64
	bound  float64
	most   bool // bound is the maximum; otherwise the minimum
}

func (v verdict) reached() bool {
	if v.most {
		return v.got <= v.bound
	}
	return v.got >= v.bound
}

// judge compares a workload with those targets whose contestants took part.
func judge(w contest.Work, turns []contest.Turn) (all []verdict) {
	own := contest.Of(turns, us)
	if len(own) == 0 {
		return nil
	}
	against := func(text, peer string, bound float64, time bool) {
		them := contest.Of(turns, peer)
		if len(them) == 0 {
			return
		}
		a := rates(w, own)
		b := rates(w, them)
		if time {
			a, b = b, a
		}
		all = append(all, verdict{text, stats.Median(stats.Ratios(a, b)), bound, time})
	}
	commits := func(text string, bound float64) {
		all = append(all, verdict{text, each(own, func(c contest.Counters) float64 { return c.Commits }), bound, true})
	}
	switch {
	case w.Contend:
		for _, t := range handOverTargets {
			if t.waiters == w.Clients {
				against(fmt.Sprintf("P3: rate with %d waiters, of etcd's Mutex", w.Clients), shared, t.bound, false)
			}
		}
		commits(fmt.Sprintf("P3: commits a hold with %d waiters", w.Clients), 3.05)
		requests := each(own, func(c contest.Counters) float64 { return c.Requests })
		all = append(all, verdict{fmt.Sprintf("P3: requests a hold with %d waiters", w.Clients), requests, 4.2, true})
		if w.Clients <= 100 {
			jain := median(own, func(t contest.Turn) float64 { return t.Jain })
			all = append(all, verdict{fmt.Sprintf("P3: Jain fairness of %d waiters", w.Clients), jain, 0.95, false})
		}
		against(fmt.Sprintf("then: rate with %d waiters, of ZooKeeper", w.Clients), "ZooKeeper", 1, false)
	case w.Clients == 1:
		against("P1: time of one client, of our transactions, bare", bare, 1.1, true)
		against("P1: time of one client, of etcd's Mutex", shared, 1.15, true)
		commits("P1: commits of one client", 2.1) // the ends of short turns count, too; another commit would make it 3
		against("then: time of one client, of raw put and delete", rawLimit, 1.25, true)
	default:
		against("P2: rate of 64 clients, of etcd's Mutex", shared, 0.80, false)
		against("P2: rate of 64 clients, of a session per lock", perLock, 3, false)
	}
	return all
}

// handOverTargets are the least ratios to etcd's Mutex (docs/benchmarks.md, P3).
var handOverTargets = []struct {
	waiters int
	bound   float64
}{{2, 10}, {10, 2.5}, {100, 1}, {1000, 2}}

// targets is the table of all verdicts.
func targets(all []verdict) string {
	var b strings.Builder
	b.WriteString("### Targets\n\n| target | bound | measured | |\n|---|---|---|---|\n")
	for _, v := range all {
		word := "reached"
		sign := "≥"
		if v.most {
			sign = "≤"
		}
		if !v.reached() {
			word = "**missed**"
		}
		fmt.Fprintf(&b, "| %s | %s %.3g | %.3g | %s |\n", v.target, sign, v.bound, v.got, word)
	}
	return b.String()
}
