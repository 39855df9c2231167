package mutex

import (
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/locktxn/etcdretry"
	"github.com/clustermutex/unlocker/internal/protocol"
)

// Internals is for packages of this module that are built on locks, such as jobs and leader. It is no part of the API:
// it gives access to internal types, which may change at any time.
func (c *Client) Internals() internals { return internals{c} }

type internals struct{ c *Client }

// Retry returns the sender of the client's requests.
func (i internals) Retry() *etcdretry.Client { return i.c.retry }

// Layout returns the layout of the keys of locks and jobs.
func (i internals) Layout() protocol.Layout { return i.c.layout }

// Draft returns the record that the lock would have if it were taken now with these options. It checks the name and the
// options, and sends no request.
func (i internals) Draft(name string, opts ...Option) (lockrecord.Draft, error) {
	set, d, err := i.c.draft(name, opts)
	if err != nil {
		return lockrecord.Draft{}, err
	}
	set.stamp(&d, i.c.wall())
	if _, err := d.Fields(); err != nil {
		return lockrecord.Draft{}, err
	}
	return d, nil
}

// WithDocuments returns an option that lets [Then] and [Lock.UnlockWith] write these keys although they lie below the
// prefix: they change together with the lock. It overrides [Reentrant].
func (internals) WithDocuments(d locktxn.Documents) Option {
	return func(s *settings) {
		s.documents = d
		s.reentrant = false
	}
}
