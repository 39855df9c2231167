package lockstore

import "time"

// WithMaxSilence sets the silence after which a watch counts as dead.
func WithMaxSilence(d time.Duration) Option { return func(s *Store) { s.maxSilence = d } }
