package locks

import (
	"github.com/clustermutex/unlocker/internal/diagnosis/verdict"
)

// Lock is the row for the table that decides which lock needs a person first, without those who wait for it.
func (r *Row) Lock() verdict.Lock {
	return verdict.Lock{Name: r.Name, Class: r.Class, Holder: r.Record, Judged: r.Verdict(), Looked: r.Looked}
}

// Whole is a lock as all hold it together.
func Whole(lock string, holders []*Row, waiting verdict.Queue) verdict.Lock {
	all := make([]verdict.Lock, len(holders))
	for i, r := range holders {
		all[i] = r.Lock()
	}
	return verdict.Whole(lock, all, waiting)
}

// ranking ranks the locks that a person may have to know about: those with waiters, and those in another state than
// held.
func (s *Snapshot) ranking() *verdict.Ranking {
	ranking := &verdict.Ranking{}
	for lock, queue := range s.Queues {
		if holders := s.Holders(lock); len(queue) > 0 && len(holders) > 0 {
			ranking.Add(Whole(lock, holders, *holders[0].Queue))
		}
	}
	for _, r := range s.troubled {
		if r.Waiters == 0 {
			ranking.Add(r.Lock())
		}
	}
	return ranking
}
