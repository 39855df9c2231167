//go:build conformance

package conformance

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

var otherChecks = []check{
	{name: "vectors: documents", rule: "protocol.md#keys-that-operators-write", needs: "documents", short: true,
		wants: "what others write for a holder or a waiter is read, or ignored as a whole", alone: vectorDocuments},
	{name: "broken keys beside a hold", rule: "protocol.md#keys-that-operators-write", short: true,
		wants: "whatever is written beside its record, a holder keeps its heartbeat, its deadline and its watch",
		alone: brokenKeysOfHold},
	{name: "broken keys of a held lock", rule: "protocol.md#keys-that-operators-write", short: true,
		wants: "a lock whose record has broken keys is held, and so says each try", alone: brokenKeysOfLock},
	{name: "texts of others", rule: "protocol.md#keys-that-operators-write", short: true,
		wants: "a name or a reason that another wrote can control no terminal", alone: textsOfOthers},
}

type vectorDocument struct {
	About, Key, UUID, Value string
	Token                   int64
	Bytes                   []byte `json:"value_base64"`
	Decoded                 map[string]any
}

func (v vectorDocument) value() string { return v.Value + string(v.Bytes) }

// documentMembers are the members that a client may report of a document.
var documentMembers = []string{"by", "reason", "source", "seconds", "ended", "why", "owner", "hostname", "note"}

func vectorDocuments(t *testing.T, _ *scene, c *client) {
	v := readProtocol[vectors](t, "vectors.json")
	d := c.start(t)
	layout := protocol.DefaultLayout()
	for kind, cases := range map[string][]vectorDocument{"request": v.Requests, "extension": v.Extensions,
		"ending": v.Endings, "delay": v.Delays, "ticket": v.Tickets, "acknowledgement": v.Acknowledgements} {
		for _, one := range cases {
			asks := request{"do": "document", "kind": kind, "lock": "a", "token": 7, "value": one.Value}
			if one.UUID != "" {
				asks["uuid"] = one.UUID
			}
			if one.Key != "" {
				asks["lock"] = layout.Parse(one.Key).Lock
			}
			if len(one.Bytes) > 0 {
				delete(asks, "value")
				asks["value_base64"] = one.Bytes
			}
			a := d.do(asks)
			if a.Error == "unsupported" {
				break // it never reads such a document
			}
			one.isDecoded(t, kind, a)
		}
	}
}

func (v vectorDocument) isDecoded(t *testing.T, kind string, a answer) {
	ignored := a.Decoded == nil || kind == "delay" && len(v.Decoded) == 0 // a delay always counts
	switch {
	case a.Error != "":
		t.Errorf("%s: %s: %.300s\nof %.300q", kind, v.About, a.line, v.value())
	case ignored != (v.Decoded == nil):
		t.Errorf("%s: %s: it is read as %.300s, want %v\nof %.300q", kind, v.About, a.line, v.Decoded, v.value())
	}
	for _, member := range documentMembers {
		said, isSaid := a.Decoded[member]
		if isSaid && said != nil && fmt.Sprint(valid(said)) != fmt.Sprint(valid(orEmpty(v.Decoded[member], said))) {
			t.Errorf("%s: %s: %s is %v, want %v\nof %.300q", kind, v.About, member, said, v.Decoded[member], v.value())
		}
	}
}

// orEmpty returns the member, or the empty string or 0 if it is absent.
func orEmpty(member, like any) any {
	if member != nil {
		return member
	}
	if _, isText := like.(string); isText {
		return ""
	}
	return 0
}

type vectorField struct {
	Name, Value string
	Bytes       []byte `json:"value_base64"`
	ModRevision int64  `json:"mod_revision"`
}

// brokenKeys returns the broken values of the vectors, by field, with documents for this hold.
func brokenKeys(t *testing.T, uuid string, token int64) map[string][]string {
	v := readProtocol[vectors](t, "vectors.json")
	all := map[string][]string{}
	for field, cases := range map[string][]vectorDocument{lockrecord.FieldAsked: v.Requests,
		lockrecord.FieldExtended: v.Extensions, lockrecord.FieldAcknowledged: v.Acknowledgements} {
		for _, one := range cases {
			meant := strings.NewReplacer(one.UUID, uuid, `"token":7,`, fmt.Sprintf(`"token":%d,`, token))
			all[field] = append(all[field], meant.Replace(one.value()))
		}
	}
	for _, r := range v.Records {
		var fields []vectorField
		proctest.Must(t, json.Unmarshal(r.Fields, &fields))
		for _, f := range fields {
			if f.Name != lockrecord.FieldUUID && len(r.Problems) > 0 && f.ModRevision == 0 {
				all[f.Name] = append(all[f.Name], f.Value+string(f.Bytes))
			}
		}
	}
	return all
}

func (s *scene) put(key, value string) { s.txn(clientv3.OpPut(key, value)) }

// breaks writes all broken keys beside a hold, one after the other. It skips readable
// deadlines, which would move the holder's.
func (s *scene) breaks(l *lock, others map[string]string) {
	for field, values := range brokenKeys(s.t, l.uuid, l.token) {
		for _, value := range values {
			if _, err := metadata.ParseTime(value); err != nil {
				s.put(s.layout.Field(l.name, field), value)
			}
		}
	}
	for field, value := range others {
		s.put(s.layout.Field(l.name, field), value)
	}
}

const late = "9999999999.9999"

func brokenKeysOfHold(t *testing.T, s *scene, c *client) {
	d := s.open(c)
	const life = 6.0
	forced := d.acquire("broken, forced", want{try: true, alert: 600, unlock: 900})
	s.breaks(forced, map[string]string{lockrecord.FieldAutoUnlockAt: late, lockrecord.FieldAlertAt: late})
	ends := d.acquire("broken, ends", want{try: true, alert: life / 2, unlock: life})
	s.breaks(ends, nil)
	if c.claims("heartbeat") {
		s.beatsOn(d, life)
	}
	s.forceUnlock(forced)
	forced.lostAs("forced")
	ends.lostAs("deadline")
	if a := d.try(ends.name); a.Error != "held" {
		t.Errorf("a try for the lock that was lost, and has its record yet: %s", a.line)
	}
}

// beatsOn expects the heartbeat of the hold to continue after all of that.
func (s *scene) beatsOn(d *driver, life float64) {
	l := d.acquire("broken, beats", want{try: true, alert: life / 2, unlock: life, heartbeat: true})
	extension := fmt.Sprintf(`{"uuid":%q,"token":%d,"by":"ann","source":"cli","seconds":1800}`, l.uuid, l.token)
	s.breaks(l, map[string]string{lockrecord.FieldExtended: extension, lockrecord.FieldAlertAt: late,
		lockrecord.FieldAutoUnlockAt: late, lockrecord.FieldAlive: "1553682600 \xff page"})
	key := s.layout.Field(l.name, lockrecord.FieldAlive)
	before := s.get(key)[0].ModRevision
	for range 2 {
		eventually(s.t, "a heartbeat", func() error {
			alive := s.get(key)[0]
			at, _, _ := strings.Cut(string(alive.Value), " ")
			if _, err := metadata.ParseTime(at); err != nil || alive.ModRevision <= before {
				return fmt.Errorf("alive is %q", alive.Value)
			}
			before = alive.ModRevision
			return nil
		})
	}
	l.lostNothing()
	l.mustRelease()
}

// brokenKeysOfLock combines the n-th broken value of each field in one record.
func brokenKeysOfLock(t *testing.T, s *scene, c *client) {
	d := s.open(c)
	step := 1
	if testing.Short() {
		step = 9
	}
	uuid := uuid.NewString()
	all := brokenKeys(t, uuid, 7)
	most := 0
	for _, values := range all {
		most = max(most, len(values))
	}
	for n := 0; n < most; n += step {
		name := fmt.Sprint("broken ", n)
		s.write(name, s.somebody(uuid))
		for field, values := range all {
			s.put(s.layout.Field(name, field), values[n%len(values)])
		}
		if a := d.try(name); a.Error != "held" || a.Holder == nil || a.Holder.UUID != uuid || a.Message == "" {
			t.Errorf("a try for a lock with the broken keys %d: %s, want held by %s", n, a.line, uuid)
		}
	}
	for n, one := range readProtocol[vectors](t, "vectors.json").Delays {
		name := fmt.Sprint("delayed ", n)
		s.put(s.layout.Delay(name), one.value())
		if n%step != 0 {
			continue
		}
		if a := d.try(name); a.Error != "held" || a.Holder != nil || !a.Delayed || a.Message == "" {
			t.Errorf("a try in a delay, %s: %s, want held, no holder, delayed", one.About, a.line)
		}
	}
}

// jsonEscape is an escape in JSON; a surrogate comes with the second one of its pair, if that follows.
var jsonEscape = regexp.MustCompile(`(?i)\\(?:[^u]|u[0-9a-f]{4}(?:\\ud[c-f][0-9a-f]{2})?)`)

// isHarmless wants texts that control no terminal and no line of a log.
func (a answer) isHarmless(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if text == "" || strings.ContainsRune(text, '\n') || strings.ContainsFunc(text, obeyed) {
			t.Errorf("%q is raw, or absent: %s", text, a.line)
		}
	}
	for _, found := range jsonEscape.FindAllString(a.line, -1) {
		if len(found) == len(`\ud800`) && strings.HasPrefix(strings.ToLower(found), `\ud`) && found[3] >= '8' {
			t.Errorf("half a surrogate pair: %s", a.line)
		}
	}
}

func textsOfOthers(t *testing.T, s *scene, c *client) {
	l := s.open(c).acquire("texts", want{try: true})
	const by, why = `\u001b[31mann\u202e\u200b`, `now\nor\u0007 never \ud800\u2028!`
	if c.claims("asked") {
		s.put(s.layout.Field(l.name, lockrecord.FieldAsked),
			fmt.Sprintf(`{"uuid":%q,"token":%d,"by":"%s","reason":"%s"}`, l.uuid, l.token, by, why))
		e := l.event("asked")
		e.isHarmless(t, e.By, e.Reason)
		a := l.check()
		a.isHarmless(t, a.Asked.By, a.Asked.Reason)
	}
	ending := fmt.Sprintf(`{"uuid":%q,"token":%d,"ended":"forced","by":"%s","why":"%s"}`, l.uuid, l.token, by, why)
	s.txn(clientv3.OpDelete(s.layout.Record(l.name), clientv3.WithPrefix()),
		clientv3.OpPut(s.layout.History(l.uuid), ending))
	e := l.event("lost")
	e.isHarmless(t, e.Reason)
	if e.Reason != "forced" {
		t.Errorf("it was lost for %q, want forced", e.Reason)
	}
	for _, a := range []answer{l.alive("on"), l.release()} {
		a.isHarmless(t, a.Message)
		if a.Error != "lost" {
			t.Errorf("after the loss: %s", a.line)
		}
	}
	s.put(s.layout.Delay("texts of a delay"), fmt.Sprintf(
		`{"lock":"texts of a delay","owner":"%s","hostname":"%s","at":"%d","seconds":60}`, by, why, time.Now().Unix()))
	a := l.d.try("texts of a delay")
	a.isHarmless(t, a.Message)
}
