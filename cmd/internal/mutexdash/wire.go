package mutexdash

import (
	"cmp"
	"crypto/x509"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/certificate"
	"github.com/clustermutex/unlocker/internal/dashboard"
	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/etcdlocks"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

type components struct {
	client   *clientv3.Client
	requests *etcdconn.RequestMetrics
	store    *lockstore.Store
	view     *lockview.View
	others   *etcdlocks.View // the locks of other libraries
	health   *etcdconn.HealthMonitor
	faults   *etcdconn.FaultMonitor
	pages    *dashboard.Dashboard
}

// connect creates the connection to etcd, and the components that read from it. It does not contact etcd.
func connect(o options, log zerolog.Logger) (*components, error) {
	layout := *o.locks
	r := &components{requests: etcdconn.NewRequestMetrics(namespace)}
	var err error
	if r.client, err = etcdconn.New(*o.etcd, log, r.requests.DialOptions()...); err != nil {
		return nil, err
	}
	r.store = lockstore.New(r.client, layout, lockstore.WithLog(log))
	r.health = etcdconn.NewHealthMonitor(r.client, o.etcd.RequestTimeout, log)
	r.faults = &etcdconn.FaultMonitor{Etcd: r.client, Prefix: layout.Prefix(), Log: log,
		IsUsable: func() bool { return r.view.Fresh().Synced }}
	r.others = etcdlocks.New(o.others, layout, r.store,
		func(row *locks.Row, ending *metadata.Ending) { r.pages.Ended(row.Record, ending) }, log)
	r.view = lockview.New(layout, lockview.Source{List: r.store.ListKeys, Watch: r.store.Watch},
		lockview.Options{
			Leased: r.others.Rows, ProgressInterval: lockstore.ProgressInterval, Fault: r.faults.Fault,
			Explain: etcdconn.Explain, Log: log,
			OnEnded: func(lock *metadata.Record, ending *metadata.Ending) { // the pages are set before the view runs
				r.pages.Ended(lock, ending)
			},
			OnAcquired: func(_ *metadata.Record, w metadata.Waiter) { r.pages.Acquired(w) },
		})
	return r, nil
}

// wire creates the dashboard, and connects it to the view and the store.
func (r *components) wire(o options, identities access.Config, log zerolog.Logger) error {
	config, err := o.appearanceConfig()
	if err != nil {
		return err
	}
	view := r.view
	config.Access = identities
	config.Log = log
	config.Layout = *o.locks
	config.Endpoints = o.etcd.Endpoints
	config.View = view
	config.Store = r.store
	config.Operator = r.store
	config.Snapshots = view.Snapshots(nil)
	config.LeasedProblems = r.others.Problems
	config.Members = func() []app.Member { return members(r.health.Last()) }
	config.Certificates = func() []app.Certificate { return shownCertificates(r.certificates(o), time.Now()) }
	config.Alarm = func() string { return alarm(r.health.Last()) }
	config.Relists = func() (n uint64) {
		for reason, lists := range view.Stats().Resyncs {
			if reason != lockview.ReasonPeriodic {
				n += lists
			}
		}
		return n
	}
	config.Enabled = o.access.enabled()
	r.pages, err = dashboard.New(config)
	return err
}

func members(h *etcdconn.Health) []app.Member {
	if h == nil {
		return nil
	}
	var list []app.Member
	for _, m := range h.Members {
		shown := app.Member{Endpoint: m.Endpoint, Version: m.Version, Size: m.Size,
			Quota: m.Quota, Problem: cmp.Or(m.Problem, m.WhyOutdated)}
		switch {
		case m.Problem != "":
		case m.Leader:
			shown.Role = "leader"
		case m.Learner:
			shown.Role = "learner"
		default:
			shown.Role = "follower"
		}
		list = append(list, shown)
	}
	return list
}

func (r *components) certificates(o options) certificate.Sources {
	return certificate.Sources{EtcdClient: o.etcd.ClientCertificate, EtcdServer: r.health.ServerCertificate,
		Web: o.web.Certificate}
}

func shownCertificates(s certificate.Sources, now time.Time) (all []app.Certificate) {
	for _, of := range []struct {
		name string
		read func() *x509.Certificate
	}{{"client certificate", s.EtcdClient}, {"etcd's certificate", s.EtcdServer}, {"web certificate", s.Web}} {
		if c := of.read(); c != nil {
			all = append(all, app.Certificate{Name: of.name, ExpiresAt: c.NotAfter,
				Expiry: certificate.Expiry(c, now), IsDue: certificate.Warning(of.name, c, now) != ""})
		}
	}
	return all
}

// alarm explains the first alarm that etcd has raised; empty if none is known.
func alarm(h *etcdconn.Health) string {
	if h == nil || len(h.Alarms) == 0 {
		return ""
	}
	return etcdconn.ExplainAlarm(h.Alarms[0])
}
