package main

import (
	"math"
	"testing"

	"github.com/clustermutex/unlocker/bench/contest"
)

// turns has so many a second done by each contestant in each of the rounds.
func turns(rates map[string][]float64) (all []contest.Turn) {
	for name, rounds := range rates {
		for round, rate := range rounds {
			all = append(all, contest.Turn{
				Contestant: name, Round: round, Seconds: 2, Done: int(2 * rate), Passed: int(2 * rate), Jain: 1,
				Served: 2,
				Server: &contest.Counters{Requests: 4 * 2 * rate, Commits: 3 * 2 * rate, Watches: math.NaN()},
			})
		}
	}
	return all
}

func TestTargetsAreJudgedByTheMedianRatio(t *testing.T) {
	for _, c := range []struct {
		about string
		work  contest.Work
		rates map[string][]float64
		want  map[string]bool
	}{
		{"one client", contest.Work{Clients: 1}, map[string][]float64{us: {80, 80}, bare: {84, 84}, rawLimit: {96, 96},
			shared: {96, 96}}, map[string]bool{
			"P1: time of one client, of our transactions, bare": true,
			"then: time of one client, of raw put and delete":   true, "P1: time of one client, of etcd's Mutex": false,
			"P1: commits of one client": false,
		}},
		{"64 clients", contest.Work{Clients: 64}, map[string][]float64{us: {80}, shared: {100}, perLock: {30}},
			map[string]bool{
				"P2: rate of 64 clients, of etcd's Mutex": true, "P2: rate of 64 clients, of a session per lock": false,
			}},
		{"two waiters", contest.Work{Clients: 2, Contend: true}, map[string][]float64{us: {100}, shared: {11}},
			map[string]bool{
				"P3: rate with 2 waiters, of etcd's Mutex": false, "P3: commits a hold with 2 waiters": true,
				"P3: requests a hold with 2 waiters": true,
				"P3: Jain fairness of 2 waiters":     true,
			}},
	} {
		got := map[string]bool{}
		for _, v := range judge(c.work, turns(c.rates)) {
			got[v.target] = v.reached()
		}
		for target, want := range c.want {
			if reached, judged := got[target]; !judged || reached != want {
				t.Errorf("%s: %s: reached %v (judged %v), want %v", c.about, target, reached, judged, want)
			}
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: judged %v", c.about, got)
		}
	}
}
