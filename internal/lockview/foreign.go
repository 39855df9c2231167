package lockview

// countForeign adds n, which may be negative, to the count of foreign keys, one of which is key. They lie in the range
// of lock, or of none if that is empty; held reports whether that lock has a record.
func (s *snapshot) countForeign(key, lock string, n int, held bool) {
	s.foreignTotal += n
	switch key = clip(key); {
	case n < 0:
		delete(s.foreignSample, key)
	case len(s.foreignSample) < maxForeignSample:
		s.foreignSample[key] = true
	}
	if lock == "" {
		return
	}
	known, ok := s.foreignIn[lock]
	switch {
	case !ok && n < 0:
	case !ok && !held && len(s.foreignIn) >= maxForeignLocks:
		s.foreignOverflow = true
	case ok && known > 0 && known+n <= 0:
		delete(s.foreignIn, lock)
	case !ok || known > 0:
		s.foreignIn[lock] = known + n
	}
}
