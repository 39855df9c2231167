package api

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/dashboard/etcdread"
	"github.com/clustermutex/unlocker/internal/dashboard/pages"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func (a *API) ServeLock(r *app.Request) (app.Answer, error) {
	lock, err := a.app.ReadHeldLock(r)
	if err != nil {
		return app.Answer{}, a.withDelays(r, err)
	}
	include := strings.Split(r.URL.Query().Get("include"), ",")
	if slices.Contains(include, "backtrace") && len(include) == 1 {
		if err := a.app.AuthorizeFor(r.Caller, access.Backtrace, lock.FullRecord.Owner); err != nil {
			return app.Answer{}, err
		}
	}
	now := lock.Viewpoint(r.Viewpoint()).AsOf
	j := a.documentJSON(lock, r.Snapshot().DelaysOf(lock.Name), now)
	if said := a.pages.HeadlineOf(r, lock, false); said.Summary != nil {
		j.Headline = lockjson.NewHeadline(&said.Headline, said.String(), said.Command)
	}
	a.addPast(&j, r, lock, now)
	if slices.Contains(include, "backtrace") && r.Caller.MayFor(access.Backtrace, lock.FullRecord.Owner) {
		j.Backtrace = lockjson.OrNull(lock.FullRecord.Backtrace)
	}
	if slices.Contains(include, "fields") {
		j.Fields = fieldsJSON(r.Caller, &lock.FullRecord)
	}
	m := newMeta(r, now)
	if lock.ReadRevision > 0 {
		m.Revision = strconv.FormatInt(lock.ReadRevision, 10)
		m.Stale = false
	}
	return m.answer(j)
}

// addPast adds what past holds say about this one.
func (a *API) addPast(j *lockjson.Document, r *app.Request, lock *app.Lock, now time.Time) {
	past, err := a.app.History.Endings(r.Context(), r.Now, lock.Name)
	gaps, _ := a.app.History.WatchGaps(r.Now, r.Fresh)
	j.UsualHold = lockjson.NewUsualHold(etcdread.UsualHold(past, gaps))
	if lock.Row == nil {
		return
	}
	if err != nil {
		past = nil
	}
	j.Diagnosis = lockjson.NewDiagnosis(a.pages.Diagnose(r, lock, past), now)
}

// withDelays adds the lock delays to the problem that nobody holds the lock.
func (a *API) withDelays(r *app.Request, err error) error {
	var free *app.HTTPError
	if !errors.As(err, &free) || free.Code != "not_found" {
		return err
	}
	delays := r.Snapshot().DelaysOf(free.Name)
	if len(delays) == 0 {
		return err
	}
	p := *free
	p.DelayCount = len(delays)
	p.Delays = lockjson.Delays(delays, r.Now)
	return &p
}

// documentJSON returns the lock without backtrace and fields.
func (a *API) documentJSON(lock *app.Lock, delays []metadata.LockDelay, now time.Time) lockjson.Document {
	j := lockjson.NewDocument(lock.Name, lock.Row, lock.Shares, lock.Waiters, delays, now)
	j.Client = lockjson.OrNull(lock.FullRecord.Client)
	j.Unread = lockjson.OrNull(lock.ReadError)
	j.URL = a.app.URLs.Lock(lock.Name, lockjson.OrZero(j.UUID))
	for i := range j.Holders {
		h := &j.Holders[i]
		h.URL = a.app.URLs.Lock(h.Name, lockjson.OrZero(h.UUID))
	}
	if lock.RequestedHold != "" {
		ending := &metadata.Ending{Name: lock.Name, UUID: lock.RequestedHold} // over, and no more is known
		if lock.Ending != nil {
			ending = lock.Ending
		}
		j.Ending = new(lockjson.NewEnding(ending, now))
	}
	return j
}

func fieldsJSON(c access.Caller, record *metadata.FullRecord) []lockjson.Field {
	var list []lockjson.Field
	for _, f := range record.Fields {
		if !pages.Hidden(c, record.Owner, f.Name) {
			list = append(list, lockjson.NewField(f))
		}
	}
	return list
}
