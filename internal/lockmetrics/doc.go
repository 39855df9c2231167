// Package lockmetrics shows the held locks as Prometheus samples. Everything is computed when somebody scrapes, from
// the same picture and with the same judgement as the page and the sweeper use, so the metric can not tell another
// story than they do, and a lock that is gone leaves no series behind.
//
// Lock names, owners and hostnames are what strangers wrote into etcd. They become labels only when they were made
// short and printable, only for as many locks as the limit allows, and two locks that look alike afterwards never break
// a scrape.
//
// Samples are timestamps and counts: ages are for whoever reads them, at their time.
package lockmetrics
