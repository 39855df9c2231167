package cli

import (
	"context"
	"slices"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// maxCompared is how many of the newest endings of all locks are searched for past holds of one.
const maxCompared = 1000

// diagnose is what is probably the matter with the holder of a lock, from all that etcd knows: its record, how long
// past holds took that others ended, and what its process waits for.
func (s *session) diagnose(ctx context.Context, doc *metadata.Document, now time.Time) (diagnosis.Diagnosis, error) {
	f := diagnosis.Facts{Record: &doc.Record, Judged: judge(&doc.Record, now), Now: now,
		Every: diagnosis.Every(&doc.Record, doc.Fields)}
	if doc.Token == 0 || doc.Proven() {
		return diagnosis.Of(f), nil
	}
	past, err := s.endingsOf(ctx, doc.Name)
	if err != nil {
		return diagnosis.Diagnosis{}, err
	}
	f.Compare(past)
	request, cancel := s.request(ctx)
	defer cancel()
	queues, err := s.store.Queues(request)
	if err != nil {
		return diagnosis.Diagnosis{}, s.explain(ctx, "read the waiters for all locks", err)
	}
	f.Waits, err = diagnosis.Chain(&doc.Record, queues, func(lock string) ([]*metadata.Record, error) {
		return s.holders(ctx, lock)
	})
	return diagnosis.Of(f), err
}

// endingsOf are the recorded endings of a lock or of its shares, as far as they are among the newest of all.
func (s *session) endingsOf(ctx context.Context, lock string) ([]metadata.Ending, error) {
	request, cancel := s.request(ctx)
	defer cancel()
	all, err := s.store.History(request, maxCompared)
	if err != nil {
		return nil, s.explain(ctx, "read the history of "+text.Visible(lock), err)
	}
	return slices.DeleteFunc(all, func(e metadata.Ending) bool {
		return e.Lock != lock && metadata.ShareOf(e.Lock, e.Attributes).Lock != lock
	}), nil
}

// holders are the records of those who hold a lock, alone or together; none if nobody does.
func (s *session) holders(ctx context.Context, lock string) ([]*metadata.Record, error) {
	doc, err := s.get(ctx, lock)
	switch {
	case err == nil:
		return []*metadata.Record{&doc.Record}, nil
	case status(err) != ExitNoLock:
		return nil, err
	}
	return s.shares(ctx, lock)
}
