package lockview

const (
	// maxForeignSample is how many foreign keys are remembered by name.
	maxForeignSample = 100
	// maxForeignLocks is how many lock names are remembered that are not held but have foreign keys in their range.
	// With more of them, every new lock is assumed to have some: deleting it range by range is slower, but never
	// deletes what is not its own.
	maxForeignLocks = 10_000
)

// foreignKeys counts the keys below the prefix that the layout does not know.
type foreignKeys struct {
	total    int
	sample   map[string]bool // some of them
	in       map[string]int  // how many lie in a lock's range, by lock; 0 = unknown
	overflow bool            // there are more such locks than in holds
}

// add adds n foreign keys, or removes them if n is negative; key is one of them. They lie in the range of lock, or of
// none if that is empty; held reports whether that lock has a record.
func (f *foreignKeys) add(key, lock string, n int, held bool) {
	f.total += n
	switch key = clip(key); {
	case n < 0:
		delete(f.sample, key)
	case len(f.sample) < maxForeignSample:
		f.sample[key] = true
	}
	if lock == "" {
		return
	}
	known, ok := f.in[lock]
	switch {
	case !ok && n < 0:
	case !ok && !held && len(f.in) >= maxForeignLocks:
		f.overflow = true
	case ok && known > 0 && known+n <= 0:
		delete(f.in, lock)
	case !ok || known > 0:
		f.in[lock] = known + n
	}
}
