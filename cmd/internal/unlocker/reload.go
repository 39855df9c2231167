package unlocker

import (
	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/etcdconn"
)

// reload applies the current files of etcd's certificates and of the Alertmanagers. The web server and the login reread
// theirs by themselves.
func (o options) reload(r *components, connections *etcdconn.Connections, log zerolog.Logger) daemon.Reload {
	return daemon.Reload{
		Log: log,
		Check: func() error {
			for _, check := range []func() error{o.etcd.Check, o.web.Check, o.push.check} {
				if err := check(); err != nil {
					return err
				}
			}
			return nil
		},
		Use: func() int {
			if client, err := o.push.client(); err == nil && r.pusher != nil {
				r.alertmanager.now.Store(client)
			}
			return connections.Renew()
		},
	}
}
