package unlocker

import (
	"errors"

	"github.com/clustermutex/unlocker/internal/etcdconn"
)

// wrote notes whether etcd refuses our writes, from the outcome of one, and explains that for operators. That it does
// not answer is another condition.
func (r *components) wrote(err error, prefix string) error {
	if err == nil {
		r.refused.Store(nil)
		return nil
	}
	said := etcdconn.Explain(err)
	switch etcdconn.Classify(err) {
	case etcdconn.Permission:
		said += "; an unlocker needs readwrite on the prefix " + prefix
		r.refused.Store(&said)
	case etcdconn.NoSpace:
		r.refused.Store(&said)
	}
	return errors.New(said)
}

// writes is the readiness condition that etcd does not refuse our writes. Without them this unlocker removes nothing,
// and nobody can see that it runs.
func (r *components) writes() error {
	if said := r.refused.Load(); said != nil {
		return errors.New(*said)
	}
	return nil
}

// explained replaces err by a sentence for operators.
func explained(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(etcdconn.Explain(err))
}
