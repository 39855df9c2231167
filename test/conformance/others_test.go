//go:build conformance

package conformance

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// otherChecks are about keys that others write beside a record, whatever is in them.
func otherChecks() []check {
	return []check{
		{name: "vectors: documents", rule: "protocol.md#what-others-write", needs: []string{"documents"}, short: true,
			wants: "what others write for a holder or a waiter is read, or ignored as a whole", alone: vectorDocuments},
		{name: "broken keys beside a hold", rule: "protocol.md#what-others-write",
			needs: []string{"basic"}, short: true,
			wants: "whatever is written beside its record, a holder keeps its heartbeat, its deadline and its watch",
			alone: brokenKeysOfHold},
		{name: "broken keys of a held lock", rule: "protocol.md#what-others-write",
			needs: []string{"basic"}, short: true,
			wants: "a lock whose record has broken keys is held, and so says each try", alone: brokenKeysOfLock},
		{name: "texts of others", rule: "protocol.md#what-others-write", short: true,
			wants: "a name or a reason that another wrote can control no terminal", alone: textsOfOthers},
	}
}

// vectorDocument is a document in vectors.json.
type vectorDocument struct {
	About, Key, UUID, Value string
	Token                   int64
	Bytes                   string `json:"value_base64"`
	Decoded                 map[string]any
}

func (v vectorDocument) value() []byte {
	if v.Bytes == "" {
		return []byte(v.Value)
	}
	text, err := base64.StdEncoding.DecodeString(v.Bytes)
	if err != nil {
		panic(err)
	}
	return text
}

// documentMembers are what a client may say of a document.
var documentMembers = []string{"by", "reason", "source", "seconds", "ended", "why", "owner", "hostname", "note"}

func vectorDocuments(t *testing.T, _ *world, c *client) {
	v := readProtocol[vectors](t, "vectors.json")
	d := c.start(t)
	layout := protocol.DefaultLayout()
	for kind, cases := range map[string][]vectorDocument{"request": v.Requests, "extension": v.Extensions,
		"ending": v.Endings, "delay": v.Delays, "ticket": v.Tickets, "acknowledgement": v.Acknowledgements} {
		for _, one := range cases {
			asks := request{"do": "document", "kind": kind, "lock": "a", "token": 7}
			if one.UUID != "" {
				asks["uuid"] = one.UUID
			}
			if one.Key != "" {
				asks["lock"] = layout.Parse(one.Key).Lock
			}
			if one.Bytes != "" {
				asks["value_base64"] = one.Bytes
			} else {
				asks["value"] = one.Value
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
	t.Helper()
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

// orEmpty is the member, or the empty text or 0 for one that is absent.
func orEmpty(member, like any) any {
	if member != nil {
		return member
	}
	if _, isText := like.(string); isText {
		return ""
	}
	return 0
}

// brokenKey is a value that belongs into no field, or means another hold.
type brokenKey struct {
	field string
	value []byte
}

// brokenKeys are those of the vectors, by field. The documents are for this hold.
func brokenKeys(t *testing.T, uuid string, token int64) map[string][][]byte {
	t.Helper()
	v := readProtocol[vectors](t, "vectors.json")
	all := map[string][][]byte{}
	for field, cases := range map[string][]vectorDocument{metadata.FieldAsked: v.Requests,
		metadata.FieldExtended: v.Extensions, metadata.FieldAcknowledged: v.Acknowledgements} {
		for _, one := range cases {
			value := bytes.ReplaceAll(one.value(), []byte(one.UUID), []byte(uuid))
			value = bytes.ReplaceAll(value, []byte(`"token":7,`), fmt.Appendf(nil, `"token":%d,`, token))
			all[field] = append(all[field], value)
		}
	}
	for _, r := range v.Records {
		var fields []vectorField
		if err := json.Unmarshal(r.Fields, &fields); err != nil {
			t.Fatal(err)
		}
		for _, f := range fields {
			text, _ := base64.StdEncoding.DecodeString(f.Bytes)
			if f.Name != metadata.FieldUUID && len(r.Problems) > 0 && f.ModRevision == 0 {
				all[f.Name] = append(all[f.Name], append([]byte(f.Value), text...))
			}
		}
	}
	return all
}

// put writes one field of a record.
func (s *scene) put(key string, value []byte) {
	s.t.Helper()
	ctx, cancel := s.context()
	defer cancel()
	if _, err := s.etcd.Put(ctx, key, string(value)); err != nil {
		s.t.Fatal(err)
	}
}

// breaks writes all of the broken keys beside a hold, one after the other. A deadline that can be read moves that of
// the holder: it stays.
func (s *scene) breaks(l *lock, others ...brokenKey) {
	s.t.Helper()
	for field, values := range brokenKeys(s.t, l.uuid, l.token) {
		for _, value := range values {
			if _, err := metadata.ParseTime(string(value)); err != nil {
				s.put(s.layout.Field(l.name, field), value)
			}
		}
	}
	for _, k := range others {
		s.put(s.layout.Field(l.name, k.field), k.value)
	}
}

func brokenKeysOfHold(t *testing.T, w *world, c *client) {
	s := w.scene(t)
	d := s.open(c)
	const life = 6.0
	forced := d.acquire("broken, forced", want{try: true, alert: 600, unlock: 900})
	late := []byte("9999999999.9999")
	s.breaks(forced, brokenKey{metadata.FieldAutoUnlockAt, late}, brokenKey{metadata.FieldAlertAt, late})
	ends := d.acquire("broken, ends", want{try: true, alert: life / 2, unlock: life})
	s.breaks(ends)
	if c.claims([]string{"heartbeat"}) {
		s.beatsOn(d, life)
	}
	s.forceUnlock(forced)
	forced.lostAs("forced")
	ends.lostAs("deadline")
	if a := d.try(ends.name); a.Error != "held" {
		t.Errorf("a try for the lock that was lost, and has its record yet: %s", a.line)
	}
}

// beatsOn wants the heartbeat of a hold to go on after all of that.
func (s *scene) beatsOn(d *driver, life float64) {
	s.t.Helper()
	l := d.acquire("broken, beats", want{try: true, alert: life / 2, unlock: life, heartbeat: true})
	late := []byte("9999999999.9999")
	extension := fmt.Appendf(nil, `{"uuid":%q,"token":%d,"by":"ann","source":"cli","seconds":1800}`, l.uuid, l.token)
	s.breaks(l, brokenKey{metadata.FieldExtended, extension}, brokenKey{metadata.FieldAlertAt, late},
		brokenKey{metadata.FieldAutoUnlockAt, late}, brokenKey{metadata.FieldAlive, []byte("1553682600 \xff page")})
	key := s.layout.Field(l.name, metadata.FieldAlive)
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
	if a := l.check(); a.Lost != nil {
		s.t.Errorf("the heartbeat goes on, and the hold is lost: %s", a.line)
	}
	l.mustRelease()
}

// brokenKeysOfLock combines the n-th broken value of each field in one record.
func brokenKeysOfLock(t *testing.T, w *world, c *client) {
	s := w.scene(t)
	d := s.open(c)
	step := 1
	if testing.Short() {
		step = 9
	}
	uuid := newUUID()
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

func textsOfOthers(t *testing.T, w *world, c *client) {
	s := w.scene(t)
	l := s.open(c).acquire("texts", want{try: true})
	const by, why = `\u001b[31mann\u202e\u200b`, `now\nor\u0007 never \ud800\u2028!`
	if c.claims([]string{"asked"}) {
		s.put(s.layout.Field(l.name, metadata.FieldAsked),
			fmt.Appendf(nil, `{"uuid":%q,"token":%d,"by":"%s","reason":"%s"}`, l.uuid, l.token, by, why))
		e := l.event("asked")
		e.isHarmless(t, e.By, e.Reason)
		a := l.check()
		a.isHarmless(t, a.Asked.By, a.Asked.Reason)
	}
	ctx, cancel := s.context()
	defer cancel()
	ending := fmt.Sprintf(`{"uuid":%q,"token":%d,"ended":"forced","by":"%s","why":"%s"}`, l.uuid, l.token, by, why)
	if _, err := s.etcd.Txn(ctx).Then(
		clientv3.OpDelete(s.layout.Record(l.name), clientv3.WithPrefix()),
		clientv3.OpPut(s.layout.History(l.uuid), ending)).Commit(); err != nil {
		t.Fatal(err)
	}
	e := l.eventWithin("lost", *limit)
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
	s.put(s.layout.Delay("texts of a delay"), fmt.Appendf(nil,
		`{"lock":"texts of a delay","owner":"%s","hostname":"%s","at":"%d","seconds":60}`, by, why, time.Now().Unix()))
	a := l.d.try("texts of a delay")
	a.isHarmless(t, a.Message)
}
