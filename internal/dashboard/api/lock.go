package api

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/pages"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func (d *API) ServeLock(r *site.Request) (site.Answer, error) {
	v, err := d.Find(r)
	if err != nil {
		return site.Answer{}, err
	}
	include := strings.Split(r.URL.Query().Get("include"), ",")
	if slices.Contains(include, "backtrace") && len(include) == 1 {
		if err := d.AdmitFor(r.Caller, access.Backtrace, v.Document.Owner); err != nil {
			return site.Answer{}, err
		}
	}
	now := v.Viewpoint(r.Viewpoint()).AsOf
	j := d.documentJSON(v, now)
	if slices.Contains(include, "backtrace") && r.Caller.MayFor(access.Backtrace, v.Document.Owner) {
		j.Backtrace = lockjson.Known(v.Document.Backtrace)
	}
	if slices.Contains(include, "fields") {
		j.Fields = fieldsJSON(r.Caller, &v.Document)
	}
	m := newMeta(r, now)
	if v.ReadRevision > 0 {
		m.Revision = strconv.FormatInt(v.ReadRevision, 10)
		m.Stale = false
	}
	return jsonAnswer(j, m, "")
}

// documentJSON is the lock without backtrace and fields.
func (d *API) documentJSON(v *site.Lock, now time.Time) lockjson.Document {
	j := lockjson.Document{Client: lockjson.Known(v.Document.Client), Unread: lockjson.Known(v.Unread),
		Queue: lockjson.Waiters(v.InLine, now)}
	for _, r := range v.Shares {
		j.Holders = append(j.Holders, d.Lock(r, now))
	}
	if v.Row != nil {
		j.Lock = d.Lock(v.Row, now)
	} else {
		var queue *lockjson.Queue
		if d.Config.Queues != nil {
			queue = lockjson.QueueOf(v.InLine)
		}
		j.Lock = lockjson.Whole(v.LockName, j.Holders, queue, now)
		j.URL = d.Urls.Lock(v.LockName, "")
	}
	if v.AskedHold != "" {
		ending := &metadata.Ending{Lock: v.LockName, UUID: v.AskedHold} // over, and no more is known
		if v.Ending != nil {
			ending = v.Ending
		}
		over := lockjson.NewEnding(ending, now)
		j.Ending = &over
	}
	return j
}

func fieldsJSON(c access.Caller, doc *metadata.Document) []lockjson.Field {
	var list []lockjson.Field
	for _, f := range doc.Fields {
		if !pages.Hidden(c, doc.Owner, f.Name) {
			list = append(list, lockjson.NewField(f))
		}
	}
	return list
}
