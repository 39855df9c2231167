// Package alertpush sends alerts about locks to Alertmanager, for installations without Prometheus, or that cannot wait
// for its scrape.
//
// A [Pusher] judges the locks whenever they change and whenever a deadline passes, at most once a second, and keeps the
// set of alerts. What is new goes to every Alertmanager at once; everything is re-sent every minute, because
// Alertmanager forgets alerts that it no longer receives. An alert that is over is sent as resolved for 15 minutes.
//
// The alerts have the names of the rules in deploy/prometheus, and only the labels that identify the alert, its lock,
// and whom to tell: the owner, and attributes of the record that the operator named. So every unlocker pushes the same
// alerts, Alertmanager merges them, and a restart starts none of them again. Host and purpose are annotations.
//
// Only the goroutine that talks to an Alertmanager waits for it. While one does not answer, the latest state of each
// alert is kept for it, so its queue is never longer than the set of alerts.
//
// While the view of the locks is not current, its last state is pushed: an alert that ends late is better than one that
// ends because etcd is unavailable.
package alertpush
