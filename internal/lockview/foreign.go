package lockview

// stray counts n keys that fit no layout, one of which is key; lock is the one in whose range they lie, or empty, and
// held tells whether it has a record.
func (p *picture) stray(key, lock string, n int, held bool) {
	p.foreign += n
	switch key = clip(key); {
	case n < 0:
		delete(p.sample, key)
	case len(p.sample) < maxSample:
		p.sample[key] = true
	}
	if lock == "" {
		return
	}
	known, ok := p.strays[lock]
	switch {
	case !ok && n < 0:
	case !ok && !held && len(p.strays) >= maxStrays:
		p.astray = true
	case ok && known > 0 && known+n <= 0:
		delete(p.strays, lock)
	case !ok || known > 0:
		p.strays[lock] = known + n
	}
}
