package dashboard

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func (d *Dashboard) lockAPI(r *http.Request) (answer, error) {
	v, err := d.find(r)
	if err != nil {
		return answer{}, err
	}
	include := strings.Split(r.URL.Query().Get("include"), ",")
	if slices.Contains(include, "backtrace") && len(include) == 1 {
		if err := d.admitFor(callerOf(r), Backtrace, v.document.Owner); err != nil {
			return answer{}, err
		}
	}
	now := d.lens().of(v).asOf
	j := d.documentJSON(v, now)
	if slices.Contains(include, "backtrace") && callerOf(r).mayFor(Backtrace, v.document.Owner) {
		j.Backtrace = lockjson.Known(v.document.Backtrace)
	}
	if slices.Contains(include, "fields") {
		j.Fields = fieldsJSON(callerOf(r), &v.document)
	}
	m := d.meta(now)
	if v.revision > 0 {
		m.Revision = strconv.FormatInt(v.revision, 10)
		m.Stale = false
	}
	return jsonAnswer(j, m, "")
}

// documentJSON is the lock without backtrace and fields.
func (d *Dashboard) documentJSON(v *lockView, now time.Time) lockjson.Document {
	j := lockjson.Document{Client: lockjson.Known(v.document.Client), Unread: lockjson.Known(v.unread),
		Queue: lockjson.Waiters(v.waiters, now)}
	for _, r := range v.shares {
		j.Holders = append(j.Holders, d.lockJSON(r, now))
	}
	if v.row != nil {
		j.Lock = d.lockJSON(v.row, now)
	} else {
		var queue *lockjson.Queue
		if d.config.Queues != nil {
			queue = lockjson.QueueOf(v.waiters)
		}
		j.Lock = lockjson.Whole(v.lock, j.Holders, queue, now)
		j.URL = d.urls.Lock(v.lock, "")
	}
	if v.asked != "" {
		ending := &metadata.Ending{Lock: v.lock, UUID: v.asked} // over, and no more is known
		if v.ending != nil {
			ending = v.ending
		}
		over := lockjson.NewEnding(ending, now)
		j.Ending = &over
	}
	return j
}

func fieldsJSON(c caller, doc *metadata.Document) []lockjson.Field {
	var list []lockjson.Field
	for _, f := range doc.Fields {
		if !hidden(c, doc.Owner, f.Name) {
			list = append(list, lockjson.NewField(f))
		}
	}
	return list
}
