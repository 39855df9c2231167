package main

import (
	"fmt"
	"strings"

	"github.com/clustermutex/unlocker/cmd/mutexdev/demo"
)

// guide returns what runs where, and what to look at.
func (o *options) guide(endpoint, dir string, languages *demo.Languages) string {
	var b strings.Builder
	b.WriteString("\nmutexdev: an etcd, the unlocker and the dashboard. Ctrl-C stops everything.\n\n")
	data := "data in " + dir
	if o.dataDir == "" {
		data = "data is deleted at the end"
	}
	for _, line := range [][3]string{
		{"dashboard", "http://" + o.web.value + "/", ""},
		{"unlocker", "http://" + o.unlocker.value + "/metrics", ""},
		{"etcd", endpoint, data},
	} {
		fmt.Fprintf(&b, "  %-10s %-36s %s\n", line[0], line[1], line[2])
	}
	b.WriteByte('\n')
	for _, a := range []*address{o.etcd, o.unlocker, o.web} {
		if a.taken != "" {
			fmt.Fprintf(&b, "  %s was in use, so %s is on a free port.\n", a.taken, a.what)
		}
	}
	if !o.noDemo {
		b.WriteString(o.tour(languages))
	}
	fmt.Fprintf(&b, `In another terminal:

  export ETCDCTL_ENDPOINTS=%s
  go run ./cmd/mutexctl list
  go run ./cmd/mutexctl run 'my/lock' -- sleep 60
  curl -s http://%s/api/v1/summary
  curl -s http://%s/metrics | grep ^unlocker_locks

`, endpoint, o.web.value, o.unlocker.value)
	return b.String()
}

// tour returns what there is to see in the demo.
func (o *options) tour(languages *demo.Languages) string {
	second := func(s float64) string { return fmt.Sprintf("%.3g s", s/o.speed) }
	tour := fmt.Sprintf(`Open the dashboard and look at

  1. billing/invoice-run   a long job that reports progress and so gets more time; the other pod waits
  2. %s       forgotten by its holder: it alerts after %s and is auto-unlocked
                           after %s, so the waiting pod gets it; its page shows where it hangs
  3. search/reindex        hangs, too, but its heartbeat goes on: it alerts after %s, and stays
  4. catalog/import/...    short jobs that come and go
  5. nightly/database dump held by a shell script: plain keys, no library
  6. reports/weekly        malformed: its deadlines are unreadable, so an operator has to look
  7. media/transcoders     a semaphore of three permits, of which a long film wants two: Waiting shows who is next
  8. catalog/prices        a read-write lock: readers together, then the writer alone
  9. reports/statistics    a job that two pods try to run, and that runs once a minute
`, demo.Forgotten, second(20), second(65), second(40))
	if witnesses() {
		tour += fmt.Sprintf(` 10. %s   its process is killed (kill -9) %s after it took the lock: a witness
                           proves that it is dead, and after %s the waiting pod has the lock, long before
                           the deadline
`, demo.Killed, second(15), second(10))
	}
	if len(languages.Found) > 0 {
		tour += "\nHeld through the clients in other languages, by processes of their own:\n\n"
	}
	for _, l := range languages.Found {
		tour += fmt.Sprintf("      %-19s %-11s %s\n", l.Lock, l.Name, l.Job)
	}
	for _, missing := range languages.Missing {
		tour += "      " + missing + "\n"
	}
	return tour + "\n"
}
