package dashboard

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/clustermutex/unlocker/internal/lockjson"
)

// The JSON API, version 1. It only grows. Its conventions are those of [lockjson].

// envelope is every answer that is not a problem.
type envelope struct {
	Data any  `json:"data"`
	Meta meta `json:"meta"`
}

type meta struct {
	AsOf     string  `json:"as_of"`
	Revision string  `json:"revision"`
	Stale    bool    `json:"stale"`
	Total    *int    `json:"total,omitempty"`
	Matched  *int    `json:"matched,omitempty"`
	Next     *string `json:"next,omitempty"`               // cursor of the next page
	NextAt   *string `json:"next_transition_at,omitempty"` // when a state changes by itself
}

// lockJSON is the lock of a row.
func (d *Dashboard) lockJSON(r *row, now time.Time) lockjson.Lock {
	var queue *lockjson.Queue
	if d.config.Queues != nil {
		queue = &lockjson.Queue{Waiters: r.waiters, Longest: r.longest}
	}
	j := lockjson.New(r.Record, r.verdict, queue, now)
	j.Expiring = r.look == expiring // as the page shows it
	j.URL = d.urls.Lock(r.Name, r.UUID)
	return j
}

func (d *Dashboard) meta(now time.Time) meta {
	fresh := d.config.Fresh()
	return meta{AsOf: lockjson.Time(now), Revision: strconv.FormatInt(fresh.Revision, 10),
		Stale: fresh.level(d.config.Now()) == stale}
}

func jsonAnswer(data any, m meta, etag string) (answer, error) {
	body, err := json.Marshal(envelope{data, m})
	return answer{Type: "application/json", Body: append(body, '\n'), ETag: etag}, err
}
