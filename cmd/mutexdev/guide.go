package main

import (
	"fmt"
	"strings"

	"github.com/clustermutex/unlocker/cmd/mutexdev/demo"
)

// guide tells what runs where and what to look at.
func (o *options) guide(endpoint, dir string) string {
	var b strings.Builder
	b.WriteString("\nmutexdev: an etcd, the unlocker and the dashboard. Ctrl-C ends all of it.\n\n")
	data := "data in " + dir
	if o.dataDir == "" {
		data = "data are gone at the end"
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
			fmt.Fprintf(&b, "  %s was taken, so %s is on a free port.\n", a.taken, a.what)
		}
	}
	if !o.noDemo {
		b.WriteString(o.tour())
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

// tour is what there is to see with the demo, in the order in which it happens.
func (o *options) tour() string {
	second := func(s float64) string { return fmt.Sprintf("%.3g s", s/o.speed) }
	return fmt.Sprintf(`Open the dashboard and look at

  1. billing/invoice-run   a long job that says how far it is, and so gets more time; the other pod waits
  2. %s       forgotten by its holder: it alerts after %s, and after %s it is
                           auto-unlocked, so that the pod that waits for it gets it; its page tells where it hangs
  3. search/reindex        hangs, too, but a heartbeat goes on: it alerts from %s on, and stays
  4. catalog/import/...    short jobs that come and go
  5. nightly/database dump held by a shell script: plain keys, no library
  6. reports/weekly        malformed: nobody can read its deadlines, so people have to look
  7. media/transcoders     a semaphore of three permits, of which a long film wants two: Waiting tells who is next
  8. catalog/prices        a read-write lock: readers beside each other, then the writer alone
  9. reports/statistics    a job that two pods try to run and that runs once a minute

`, demo.Forgotten, second(20), second(65), second(40))
}
