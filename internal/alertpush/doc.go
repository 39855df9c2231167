// Package alertpush tells Alertmanager about locks that need people, for those who have no Prometheus or can not wait
// for its scrape.
//
// A [Pusher] looks at the locks whenever they change and whenever a deadline passes, at most once a second, and keeps
// which alerts there are. What is new goes to every Alertmanager at once; everything is sent again every minute,
// because Alertmanager forgets what it does not hear of. An alert that is over is sent as resolved for a quarter of an
// hour.
//
// The alerts have the names of the rules in deploy/prometheus, and labels that say only which alert about which lock it
// is. So every unlocker pushes the same ones, a restart begins none anew, and Alertmanager makes one of them. What
// people need to know, who, where and what for, stands in the annotations.
//
// Nothing here waits for Alertmanager but the goroutine that talks to it. While one does not answer, what it has to
// know is kept, the newest word about each alert, so what waits for it is never more than there are alerts.
//
// While the picture of the locks is not current the last one is told on: an alert that is late to end is better than
// one that ends because etcd is away.
package alertpush
