package site

import "github.com/clustermutex/unlocker/internal/diagnosis/unclaimed"

// Unclaimed are the locks that nobody takes although somebody waits, those that have been free for longest first.
func (s *Site) Unclaimed() []unclaimed.Lock {
	found, _ := s.Config.Unclaimed()
	return found
}

// UnclaimedLock is the lock with this name if nobody takes it although somebody waits, else nil.
func (s *Site) UnclaimedLock(name string) *unclaimed.Lock {
	for _, l := range s.Unclaimed() {
		if l.Name == name {
			return &l
		}
	}
	return nil
}
