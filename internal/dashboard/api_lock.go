package dashboard

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/dashboard/access"
	"github.com/clustermutex/unlocker/internal/dashboard/locks"
	"github.com/clustermutex/unlocker/internal/dashboard/pages"
	"github.com/clustermutex/unlocker/internal/dashboard/site"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// lockDetailJSON is one lock with all there is.
type lockDetailJSON struct {
	*lockJSON              // absent when nobody holds the lock any more
	Use       *useJSON     `json:"use,omitempty"`     // of a lock that several hold
	Holders   []lockJSON   `json:"holders,omitempty"` // each of them
	Queue     []waiterJSON `json:"queue"`
	Unread    *string      `json:"unread,omitempty"` // why etcd could not be read: what follows is missing
	Client    *string      `json:"client,omitempty"`
	Backtrace *string      `json:"backtrace,omitempty"`
	Fields    []fieldJSON  `json:"fields,omitempty"`
	Ended     *endingJSON  `json:"ended,omitempty"` // the hold that was asked for is over
}

type waiterJSON struct {
	Owner     *string  `json:"owner"`
	Hostname  *string  `json:"hostname"`
	PID       *int64   `json:"pid"`
	Purpose   *string  `json:"purpose"`
	Since     *string  `json:"since"`
	SinceIn   *float64 `json:"since_in_seconds"`
	TimeoutAt *string  `json:"timeout_at"`
	TimeoutIn *float64 `json:"timeout_at_in_seconds"`
}

// useJSON is how far a lock that several can hold is taken.
type useJSON struct {
	Holders int  `json:"holders"`
	Permits *int `json:"permits"` // of a semaphore
	Limit   *int `json:"limit"`
}

func useOfJSON(u locks.Use) *useJSON {
	return &useJSON{Holders: u.Holders, Permits: known(u.Permits), Limit: known(u.Limit)}
}

// fieldJSON is one key of the record. Values that are not UTF-8 come as base64.
type fieldJSON struct {
	Name           string  `json:"name"`
	Value          *string `json:"value,omitempty"`
	ValueB64       *string `json:"value_b64,omitempty"`
	CreateRevision string  `json:"create_revision"`
	ModRevision    string  `json:"mod_revision"`
}

type endingJSON struct {
	Hold  string   `json:"hold"`
	Owner *string  `json:"owner"`
	How   *string  `json:"how"` // released, auto_unlocked, forced
	By    *string  `json:"by"`
	Why   *string  `json:"why"`
	At    *string  `json:"at"`
	AtIn  *float64 `json:"at_in_seconds"`
}

func (d *Dashboard) lockAPI(r *site.Request) (site.Answer, error) {
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
	j := lockDetailJSON{Unread: known(v.Unread), Client: known(v.Document.Client),
		Queue: make([]waiterJSON, len(v.InLine))}
	if v.Row != nil {
		lock := d.lockJSON(v.Row, now)
		j.lockJSON = &lock
	}
	for _, r := range v.Shares {
		j.Holders = append(j.Holders, d.lockJSON(r, now))
	}
	if len(v.Shares) > 0 {
		j.Use = useOfJSON(locks.UseOf(v.Shares))
	}
	for i, w := range v.InLine {
		j.Queue[i] = waiterJSON{Owner: known(w.Owner), Hostname: known(w.Hostname), PID: known(w.PID),
			Purpose: known(w.Purpose)}
		j.Queue[i].Since, j.Queue[i].SinceIn = instants(w.Since.Time, now)
		j.Queue[i].TimeoutAt, j.Queue[i].TimeoutIn = instants(w.TimeoutAt.Time, now)
	}
	if slices.Contains(include, "backtrace") && r.Caller.MayFor(access.Backtrace, v.Document.Owner) {
		j.Backtrace = known(v.Document.Backtrace)
	}
	if slices.Contains(include, "fields") {
		j.Fields = fieldsJSON(r.Caller, &v.Document)
	}
	if v.AskedHold != "" {
		j.Ended = endedJSON(v, now)
	}
	m := newMeta(r, now)
	if v.ReadRevision > 0 {
		m.Revision = strconv.FormatInt(v.ReadRevision, 10)
		m.Stale = false
	}
	return jsonAnswer(j, m, "")
}

func fieldsJSON(c access.Caller, doc *metadata.Document) []fieldJSON {
	var list []fieldJSON
	for _, f := range doc.Fields {
		if pages.Hidden(c, doc.Owner, f.Name) {
			continue
		}
		j := fieldJSON{Name: f.Name, CreateRevision: strconv.FormatInt(f.CreateRevision, 10),
			ModRevision: strconv.FormatInt(f.ModRevision, 10)}
		if utf8.ValidString(f.Value) {
			j.Value = &f.Value
		} else {
			encoded := base64.StdEncoding.EncodeToString([]byte(f.Value))
			j.ValueB64 = &encoded
		}
		list = append(list, j)
	}
	return list
}

func endedJSON(v *site.Lock, now time.Time) *endingJSON {
	j := &endingJSON{Hold: v.AskedHold}
	if e := v.Ending; e != nil {
		j.Owner, j.How, j.By, j.Why = known(e.Owner), known(e.Ended), known(e.By), known(e.Why)
		j.At, j.AtIn = instants(e.EndedAt.Time, now)
	}
	return j
}
