package api

import (
	"strconv"

	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/internal/lockjson"
)

type statusJSON struct {
	Level     locks.Level    `json:"level"` // live, stale, never
	Synced    bool           `json:"synced"`
	Cause     *string        `json:"cause"`
	HeardAt   *string        `json:"heard_at"`
	HeardIn   *float64       `json:"heard_at_in_seconds"`
	Revision  string         `json:"revision"`
	Version   *string        `json:"version"`
	Unlockers []unlockerJSON `json:"unlockers"`
	Members   []memberJSON   `json:"members"`
	Foreign   *int           `json:"foreign_keys"`
}

type memberJSON struct {
	Endpoint string  `json:"endpoint"`
	Role     *string `json:"role"` // leader, follower, learner
	Version  *string `json:"version"`
	Size     *int64  `json:"store_bytes"`
	Quota    *int64  `json:"quota_bytes"`
	Problem  *string `json:"problem"`
}

type unlockerJSON struct {
	ID        string   `json:"id"`
	Hostname  *string  `json:"hostname"`
	Version   *string  `json:"version"`
	Mode      *string  `json:"mode"`
	StartedAt *string  `json:"started_at"`
	StartedIn *float64 `json:"started_at_in_seconds"`
	ArrivedAt *string  `json:"arrived_at"`
	ArrivedIn *float64 `json:"arrived_at_in_seconds"`
	HeldBack  []string `json:"held_back"`
}

// ServeStatus answers with the state of the dashboard, of etcd and of the unlockers.
func (a *API) ServeStatus(r *site.Request) (site.Answer, error) {
	now := r.Now
	fresh := r.Fresh
	j := statusJSON{Level: fresh.Level(now), Synced: fresh.Synced, Cause: lockjson.Known(fresh.Cause),
		Revision: strconv.FormatInt(fresh.Revision, 10), Version: lockjson.Known(a.site.Config.Version)}
	j.HeardAt, j.HeardIn = lockjson.Instant(fresh.Heard, now)
	unlockers := r.Unlockers()
	j.Unlockers = make([]unlockerJSON, 0, len(unlockers))
	for _, u := range unlockers {
		v := unlockerJSON{ID: u.ID, Hostname: lockjson.Known(u.Hostname), Version: lockjson.Known(u.Version),
			Mode:     lockjson.Known(u.Mode),
			HeldBack: append([]string{}, u.HeldBack...)}
		v.StartedAt, v.StartedIn = lockjson.Instant(u.StartedAt.Time, now)
		v.ArrivedAt, v.ArrivedIn = lockjson.Instant(u.Arrived, now)
		j.Unlockers = append(j.Unlockers, v)
	}
	for _, m := range a.site.Config.Members() {
		j.Members = append(j.Members, memberJSON{m.Endpoint, lockjson.Known(m.Role), lockjson.Known(m.Version),
			lockjson.Known(m.Size), lockjson.Known(m.Quota), lockjson.Known(m.Problem)})
	}
	if !r.Several() {
		_, total := a.site.Config.View.Foreign()
		j.Foreign = &total
	}
	return Answer(r, j)
}
