package lockview_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Each change of one lock is compared with the result of reading all its keys.
func TestEventsYieldTheSameViewAsAList(t *testing.T) {
	key := func(field string) string { return layout.Field("a", field) }
	heavy := lock(t, "a", uuid(1), drafts[3])
	plain := lock(t, "a", uuid(1))
	extended := func(at string, progress ...string) []op {
		ops := []op{put(key(lockrecord.FieldAlertAt), at), put(key(lockrecord.FieldAutoUnlockAt), at)}
		for _, p := range progress {
			ops = append(ops, put(key(lockrecord.FieldAlive), at+p))
		}
		return ops
	}
	byKeys := []op{put(key(lockrecord.FieldUUID), uuid(1)), put(key(lockrecord.FieldAlertAt), "1553682600"),
		put(key(lockrecord.FieldAutoUnlockAt), "1553682900"), put(key(lockrecord.FieldOwner), "billing"),
		put(key(lockrecord.FieldHostname), "billing-7f9c"), put(key(lockrecord.FieldPID), "17"),
		put(key(lockrecord.FieldLockedAt), "1553682500.5"),
		put(key(lockrecord.FieldBacktrace), strings.Repeat("b", 1000))}
	with := func(ops []op, more ...op) []op { return append(slices.Clip(ops), more...) }
	note := []op{put(key("note"), strings.Repeat("n", 5000))}
	noNote := []op{remove(key("note"))}
	one := func(o op) []op { return []op{o} }

	for name, turns := range map[string][][]op{
		"taken, extended and released": {plain, extended("1553683000"), extended("1553683001", " a"),
			extended("1553683002", ""), one(removeAll(layout.Record("a")))},
		"sizes count with and without fractions": {heavy, extended("1553683000.123456789"), note, noNote,
			extended("1553683000"), note},
		"sizes count with and without progress": {heavy, extended("1553683000", " half done"), note, noNote,
			extended("1553683001", ""), note},
		"a longer progress makes the record too large": {heavy, note,
			extended("1553683000", " "+strings.Repeat("p", 1000)), noNote},
		"progress that is too long": {plain, extended("1553683000", " "+strings.Repeat("p", 2000)),
			extended("1553683000", " "+strings.Repeat("é", 700)), extended("1553683001", " a")},
		"times with zeros at their end": {heavy, extended("1553683000.500"), note,
			extended("1553683000.500", ""), noNote},
		"a blank without progress": {heavy, extended("1553683000", " "), note},
		"an extension without alive after one with": {plain, extended("1553683000", " a"), extended("1553683001"),
			one(remove(key(lockrecord.FieldAlertAt))), one(remove(key(lockrecord.FieldAutoUnlockAt)))},
		"alive alone": {plain, one(put(key(lockrecord.FieldAlive), "1553683000")),
			one(remove(key(lockrecord.FieldAlive))), one(removeAll(layout.Record("a")))},
		"one deadline alone": {plain, one(put(key(lockrecord.FieldAlertAt), "1553683000")), extended("1553683002"),
			one(put(key(lockrecord.FieldAutoUnlockAt), "1553683003"))},
		"a deadline that cannot be read, and repaired": {plain, extended("soon"), extended("1553683002")},
		"a deadline deleted while alive is called": {plain, append(extended("1553683000", " a")[1:],
			remove(key(lockrecord.FieldAlertAt)))},
		"the uuid overwritten": {plain, one(put(key(lockrecord.FieldUUID), uuid(2))), note,
			noNote, extended("1553683000")},
		"the uuid overwritten with junk and back": {plain, one(put(key(lockrecord.FieldUUID), "\xff")),
			one(put(key(lockrecord.FieldUUID), uuid(1)))},
		"the uuid deleted, written again": {plain, one(remove(key(lockrecord.FieldUUID))),
			one(put(key(lockrecord.FieldUUID), uuid(2))), extended("1553683000")},
		"the document rewritten": {plain,
			one(put(key(lockrecord.FieldMetadata), `{"owner":"other"}`)), extended("1553683000"),
			one(remove(key(lockrecord.FieldMetadata)))},
		"a member of the document shadowed by a key": {plain, one(put(key(lockrecord.FieldOwner), "other")),
			one(put(key(lockrecord.FieldPID), "no")), one(remove(key(lockrecord.FieldOwner))),
			one(remove(key(lockrecord.FieldPID)))},
		"members that are too large, shadowed by keys": {one(put(key(lockrecord.FieldMetadata),
			`{"owner":"`+strings.Repeat("o", 3000)+`","x":"`+strings.Repeat("x", 2000)+`"}`)),
			one(put(key(lockrecord.FieldOwner), "small")), one(put(key("x"), "small")),
			one(remove(key(lockrecord.FieldOwner)))},
		"keys that are too large, one after the other": {one(put(key("x"), strings.Repeat("x", 70_000))),
			one(put(key(lockrecord.FieldBacktrace), strings.Repeat("b", 20_000))),
			one(put(key("x"), strings.Repeat("é", 600))), one(remove(key(lockrecord.FieldBacktrace)))},
		"a document that is none, twice": {plain,
			one(put(key(lockrecord.FieldMetadata), strings.Repeat("[", 900))),
			one(put(key(lockrecord.FieldMetadata), `{"a":1} {"b":2}`+strings.Repeat(" ", 900)))},
		"a document with members of the protocol": {one(put(key(lockrecord.FieldMetadata),
			`{"uuid":"x","alive":"y","backtrace":"`+strings.Repeat("b", 900)+`"}`)),
			one(put(key(lockrecord.FieldAlive), "1553683000")), one(remove(key(lockrecord.FieldAlive)))},
		"more attributes than are shown": {one(put(key(lockrecord.FieldMetadata), crowded(63))),
			one(put(key("zone"), "1")), one(put(key("tenant"), "1")), one(remove(key("zone")))},
		"an attribute named like a part of the record": {one(put(key("name"), strings.Repeat("n", 3000))),
			one(put(key("attributes"), "\xff")), one(put(key("record"), "\xff"))},
		"plain keys, extended and released": {byKeys, extended("1553683000"), extended("1553683001", " a"),
			extended("1553683002", ""), one(removeAll(layout.Record("a")))},
		"a plain key rewritten, and deleted": {byKeys, one(put(key(lockrecord.FieldOwner), "other")),
			one(remove(key(lockrecord.FieldOwner))), one(put(key(lockrecord.FieldOwner), "billing")),
			one(remove(key(lockrecord.FieldBacktrace)))},
		"plain keys of all kinds": {with(byKeys, put(key(lockrecord.FieldPurpose), ""),
			put(key(lockrecord.FieldLockDelay), "7"), put(key(lockrecord.FieldBootID), "boot"),
			put(key(lockrecord.FieldProcessStart), "5"), put(key(lockrecord.FieldPIDNamespace), "6"),
			put(key(lockrecord.FieldPodNamespace), "ns"), put(key(lockrecord.FieldPodName), "pod"),
			put(key(lockrecord.FieldPodUID), "uid"), put(key(lockrecord.FieldContainer), "c"),
			put(key(lockrecord.FieldDetached), "true"), put(key("tenant"), "41"), put(key("team"), "")),
			extended("1553683000"), one(put(key("tenant"), "42")), one(remove(key(lockrecord.FieldDetached))),
			one(remove(key(lockrecord.FieldLockDelay)))},
		"plain keys without a delay": {with(byKeys, put(key(lockrecord.FieldLockDelay), "0")), extended("1553683000"),
			note},
		"a client instead of a backtrace": {with(byKeys[:7], put(key(lockrecord.FieldClient), "ruby 1.0")),
			extended("1553683000"), note, one(remove(key(lockrecord.FieldClient)))},
		"plain keys and a client": {with(byKeys, put(key(lockrecord.FieldClient), "ruby 1.0")),
			extended("1553683000"), one(remove(key(lockrecord.FieldBacktrace))), note},
		"plain keys that are written unusually": {with(byKeys[:5], put(key(lockrecord.FieldPID), "0017"),
			put(key(lockrecord.FieldLockedAt), "1553682500.50")), extended("1553683000"), note, noNote},
		"nothing but what the protocol acts on": {byKeys[:3], extended("1553683000"), note, noNote},
		"plain keys and a document": {with(byKeys, put(key(lockrecord.FieldMetadata), `{"purpose":"p"}`)),
			extended("1553683000"), one(remove(key(lockrecord.FieldMetadata)))},
		"a plain key that makes the record too large": {byKeys,
			one(put(key(lockrecord.FieldBacktrace), strings.Repeat("b", 16_000))),
			with(note, put(key("x"), strings.Repeat("x", 60_000))), noNote, one(remove(key("x")))},
		"plain keys shadowed by a document later": {byKeys,
			one(put(key(lockrecord.FieldMetadata), `{"owner":"doc","purpose":"p"}`)),
			one(remove(key(lockrecord.FieldOwner)))},
		"acknowledged, and that withdrawn": {plain, one(put(key(lockrecord.FieldAcknowledged),
			protocol.Marshal(metadata.Acknowledgement{UUID: uuid(1), Token: 2, By: "ann"}))), extended("1553683000"),
			one(remove(key(lockrecord.FieldAcknowledged))), extended("1553683001")},
		"released and taken again in one revision, key by key": {plain,
			{remove(key(lockrecord.FieldAlertAt)), remove(key(lockrecord.FieldAutoUnlockAt)),
				remove(key(lockrecord.FieldMetadata)), put(key(lockrecord.FieldUUID), uuid(2))}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			v := run(t, w.source(), lockview.Options{})
			settle(t, v, w)
			for i, turn := range turns {
				w.do(turn...)
				settle(t, v, w)
				differ(t, "after turn "+string(rune('1'+i)), show(v), w.truth())
			}
		})
	}
}

// Foreign writes into the range of a dead holder's lock must not keep it; writes of a live holder must, whatever its
// clock shows. Each change restarts an unlocker's warning.
func TestWritesThatKeepALock(t *testing.T) {
	field := func(name, value string) op { return put(layout.Field("a", name), value) }
	alertAt := func(later time.Duration) op {
		return field(lockrecord.FieldAlertAt, metadata.FormatTime(draft(uuid(1)).AlertAt.Add(later)))
	}
	unlockAt := func(later time.Duration) op {
		return field(lockrecord.FieldAutoUnlockAt, metadata.FormatTime(draft(uuid(1)).AutoUnlockAt.Add(later)))
	}
	foreign := layout.Record("a") + "invoice/alive"
	for name, c := range map[string]struct {
		writes []op // each in a revision of its own
		keeps  bool
	}{
		"a key that fits no layout":        {[]op{put(foreign, "x"), put(foreign, "y"), remove(foreign)}, false},
		"an attribute that comes and goes": {[]op{field("note", "x"), remove(layout.Field("a", "note"))}, false},
		"an acknowledgement, withdrawn": {[]op{field(lockrecord.FieldAcknowledged, "{}"),
			remove(layout.Field("a", lockrecord.FieldAcknowledged))}, false},
		"the deadlines that there are": {[]op{alertAt(0), unlockAt(0)}, false},
		"an earlier alert":             {[]op{alertAt(-time.Millisecond)}, true},
		"a later deadline":             {[]op{unlockAt(time.Millisecond)}, true},
		"another time of taking":       {[]op{field(lockrecord.FieldLockedAt, "1553682601")}, true},
		"a word that it is alive":      {[]op{field(lockrecord.FieldAlive, "1553682601 on it")}, true},
	} {
		t.Run(name, simulated(func(t *testing.T, w *world) {
			w.do(lock(t, "a", uuid(1))...)
			v := run(t, w.source(), lockview.Options{})
			for _, o := range c.writes {
				time.Sleep(time.Second)
				w.do(o)
				synctest.Wait()
			}
			if kept := v.Lock("a").Seen.Changed > 0; kept != c.keeps {
				t.Errorf("it counts as a change: %v", kept)
			}
		}))
	}
}
