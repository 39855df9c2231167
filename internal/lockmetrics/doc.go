// Package lockmetrics exports the held locks to Prometheus. Samples are computed at each scrape, from the same view and
// by the same judgement as the page and the sweeper use: metrics cannot contradict them, and a lock that is gone leaves
// no series behind.
//
// Lock names, owners and hostnames are what clients wrote into etcd. They become labels only after being made short and
// printable, and only for as many locks as the limit allows. Two locks that look alike afterwards never break a scrape.
//
// Samples are timestamps and counts. Ages are computed by the reader.
package lockmetrics
