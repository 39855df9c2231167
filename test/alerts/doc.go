// Package alerts runs the whole chain of an alert on real parts: a lock in a real etcd, the unlockers and the dashboard
// as processes, Prometheus with the shipped rules, Alertmanager with the inhibitions of the example, and a web hook of
// ours at the end. It needs prometheus and alertmanager on this machine, which `make alerts` sees to, and fails without
// them.
package alerts
