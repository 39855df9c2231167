package lockstore

import "time"

// WithPulse makes a watch ask etcd for a sign of life this often, and end after three times as long without one.
func WithPulse(d time.Duration) Option { return func(s *Store) { s.pulse = d } }
