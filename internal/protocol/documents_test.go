package protocol_test

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestEndingCarriesTheRecord(t *testing.T) {
	at := time.Unix(1_553_683_506, 0).UTC()
	fields, err := lockrecord.Draft{
		UUID:     "6f1f6f5e-5d1c-4e52-9d2e-0a9a3f1c7b11",
		Identity: metadata.Identity{Owner: "billing", Hostname: "billing-7f9c", PID: 17, Purpose: "nightly invoices"},
		Client:   "go/1.0.0",
		LockedAt: at.Add(-15 * time.Minute), AlertAt: at.Add(-10 * time.Minute), AutoUnlockAt: at,
		Attributes: map[string]any{"tenant": 41, "team": "core", "urgent": true},
	}.Fields()
	if err != nil {
		t.Fatal(err)
	}
	d := lockrecord.Decode("billing/invoice", append(fields, metadata.Field{Name: "alive", Value: "1553682700 page 3"}))
	text := protocol.Marshal(lockrecord.NewEnding(&d.Record, metadata.EndingAutoUnlocked, "eu-1", "its time is over",
		at))
	got, err := protocol.Unmarshal[metadata.Ending]([]byte(text))
	if err != nil || protocol.Marshal(got) != text {
		t.Errorf("%s is read as %+v, %v", text, got, err)
	}
	if got.Progress != "page 3" || got.Name != "billing/invoice" || got.Reason == "" ||
		got.Attributes["team"] != "core" ||
		got.Attributes["tenant"] != float64(41) || got.Attributes["urgent"] != true || got.Owner != "billing" ||
		!got.LockedAt.Equal(at.Add(-15*time.Minute)) || !got.AutoUnlockAt.Equal(at) {
		t.Errorf("%+v", got)
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(`{"uuid":"x","since":"1553682600","timeout_at":1553682600.5}`))
	f.Add([]byte(`{"lock":"a","attributes":{"a":[{}]},"alive_at":null,"now":"'1553682600'"}`))
	f.Add([]byte(presence(`"sweep":` + sweep + `,"held_back":["gap"]`)))
	f.Fuzz(func(t *testing.T, value []byte) {
		if p := protocol.DecodePresence("x", value, 1); p != nil {
			roundTrip(t, *p)
		}
		roundTripOf[metadata.Presence](t, value)
		roundTripOf[metadata.Ending](t, value)
		roundTripOf[protocol.Action](t, value)
		roundTripOf[metadata.Ticket](t, value)
	})
}

// a document of the protocol.
type document interface {
	metadata.Ticket | metadata.Ending | metadata.Presence | protocol.Action
}

func roundTripOf[T document](t *testing.T, value []byte) {
	t.Helper()
	if d, err := protocol.Unmarshal[T](value); err == nil {
		roundTrip(t, d)
	}
}

func roundTrip[T document](t *testing.T, document T) {
	t.Helper()
	text := protocol.Marshal(document)
	again, err := protocol.Unmarshal[T]([]byte(text))
	if err != nil || protocol.Marshal(again) != text {
		t.Errorf("%s is read again as %+v, %v", text, again, err)
	}
}

func TestLockDelayDescription(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 12, 41, 0, time.UTC)
	auto := metadata.LockDelay{Name: "a", Owner: "billing", Hostname: "host-3", Cause: metadata.EndingAutoUnlocked,
		At: metadata.Time{Time: now.Add(-4 * time.Second)}, Seconds: 30, Leased: true}
	forced := auto
	forced.Cause = metadata.EndingForced
	forced.By = "ann"
	unleased := auto
	unleased.Leased = false
	late := auto
	late.At.Time = now.Add(-31 * time.Second)
	for want, d := range map[string]metadata.LockDelay{
		"a lock delay of 30s after the hold of billing on host-3, auto-unlocked 4s ago, with 0:26 left":         auto,
		"a lock delay of 30s after the hold of billing on host-3, force-unlocked by ann 4s ago, with 0:26 left": forced,
		"a lock delay of 30s after the hold of billing on host-3, auto-unlocked 31s ago, about to end":          late,
		"a lock delay after a hold of which nothing is known, without a lease: it stays until an operator ends it": {
			Unreadable: true},
		"a lock delay of 30s after the hold of billing on host-3, auto-unlocked 4s ago, without a lease: " +
			"it stays until an operator ends it": unleased,
	} {
		if got := protocol.DescribeDelay(&d, now); got != want {
			t.Errorf("it is %q, want %q", got, want)
		}
	}
}

const sweep = `{"clock_skew":5,"min_warning":30.25,"default_alert_after":3600,"default_auto_unlock_after":0,` +
	`"abandoned":"unlock","abandoned_grace":0.01,"lock_delay":0,"exclude":["db/*"],"later":[{}]}`

// presence is a record that is well but for these members.
func presence(members string) string {
	return `{"id":"x","mode":"auto-unlock","now":"1553682600",` + members + `}`
}

func TestPresenceIsReadAsFarAsPossible(t *testing.T) {
	want := &metadata.RemovalPolicy{ClockSkew: metadata.Seconds(5 * time.Second),
		MinWarning:        metadata.Seconds(30250 * time.Millisecond),
		DefaultAlertAfter: metadata.Seconds(time.Hour), Abandoned: metadata.AbandonedUnlock,
		AbandonedGrace: metadata.Seconds(10 * time.Millisecond), Exclude: []string{"db/*"}}
	without := func(old, new string) string { return `"sweep":` + strings.Replace(sweep, old, new, 1) }
	for name, c := range map[string]struct {
		value string
		read  bool
		sweep *metadata.RemovalPolicy
	}{
		"what an unlocker publishes":   {presence(`"sweep":` + sweep), true, want},
		"of an older unlocker":         {presence(`"revision":7`), true, nil},
		"no object":                    {presence(`"sweep":"none"`), true, nil},
		"null":                         {presence(`"sweep":null`), true, nil},
		"a member is missing":          {presence(without(`"clock_skew":5,`, ``)), true, nil},
		"no list of exclusions":        {presence(without(`,"exclude":["db/*"]`, ``)), true, nil},
		"a member is null":             {presence(without(`5`, `null`)), true, nil},
		"a negative number":            {presence(without(`5`, `-5`)), true, nil},
		"a text":                       {presence(without(`5`, `"5s"`)), true, nil},
		"more than any time":           {presence(without(`5`, `1e300`)), true, nil},
		"a word of another version":    {presence(without(`"unlock"`, `"ask"`)), true, nil},
		"an empty glob":                {presence(without(`"db/*"`, `""`)), true, nil},
		"a long glob":                  {presence(without(`db/*`, strings.Repeat("x", 257))), true, nil},
		"many globs":                   {presence(without(`"db/*"`, `"db/*"`+strings.Repeat(`,"x"`, 64))), true, nil},
		"no time of writing":           {`{"id":"x","mode":"auto-unlock"}`, false, nil},
		"another member is unreadable": {presence(`"mode":7,"sweep":` + sweep), false, nil},
		"a megabyte":                   {presence(fmt.Sprintf(`"version":%q`, strings.Repeat("x", 1<<20))), false, nil},
		"not JSON":                     {"\xff", false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := protocol.DecodePresence("eu-1", []byte(c.value), 1)
			if (p != nil) != c.read {
				t.Fatalf("read %+v", p)
			}
			if p != nil && (p.ID != "eu-1" || !reflect.DeepEqual(p.RemovalPolicy, c.sweep)) {
				t.Errorf("read %+v, with %+v", p, p.RemovalPolicy)
			}
		})
	}
	if p := protocol.DecodePresence("eu-1", []byte(presence(`"sweep":`+sweep)), 0); p != nil {
		t.Errorf("read without a lease: %+v", p)
	}
	value := presence(`"hostname":"` + strings.Repeat("é", 5000) + `","held_back":["` + strings.Repeat("x", 5000) +
		`"` + strings.Repeat(`,"gap"`, 100) + `]`)
	long := protocol.DecodePresence(strings.Repeat("i", 5000), []byte(value), 1)
	if len(long.ID) > metadata.MaxTextBytes || len(long.Hostname) > metadata.MaxTextBytes || len(long.HeldBack) != 16 ||
		len(long.HeldBack[0]) > metadata.MaxTextBytes {
		t.Errorf("texts are kept whole: %d %d %d", len(long.ID), len(long.Hostname), len(long.HeldBack))
	}
}

func TestStatementDescriptionIsOneSentence(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	code := func(n int) *int { return &n }
	for _, c := range []struct {
		s    metadata.Statement
		want string
	}{
		{metadata.Statement{Cause: metadata.CauseContainerEnded, EndedAt: metadata.Time{Time: at}, ExitCode: code(137),
			Detail: "OOMKilled"}, "its container ended 40s ago with exit code 137 (OOMKilled)"},
		{metadata.Statement{Cause: metadata.CauseProcessEnded, At: metadata.Time{Time: at}, Signal: "SIGKILL"},
			"its process ended 40s ago by SIGKILL"},
		{metadata.Statement{Cause: metadata.CausePodEnded, EndedAt: metadata.Time{Time: at}, ExitCode: code(0)},
			"its pod ended 40s ago with exit code 0"},
		{metadata.Statement{Cause: metadata.CauseRebooted}, "its machine was rebooted"},
		{metadata.Statement{Cause: metadata.CauseContainerRestarted, Detail: "Error"},
			"its container ended and was restarted (Error)"},
		{metadata.Statement{Cause: metadata.CausePodDeleted}, "its pod was deleted"},
		{metadata.Statement{Cause: "node_on_fire"}, "node_on_fire"},
		{metadata.Statement{Cause: "\x1b[2J", Detail: "\u202e" + strings.Repeat("x", 9999)},
			`\x1b[2J (\u202e` + strings.Repeat("x", 97) + "…)"},
	} {
		if got := protocol.DescribeStatement(&c.s, at.Add(40*time.Second)); got != c.want {
			t.Errorf("got %s\nwant %s", got, c.want)
		}
	}
}

func TestStatementForAnotherHoldThanItsKeyIsIgnored(t *testing.T) {
	const mine, other = "0b2d1c1e-6a8e-4f0e-9d55-3a5f6f2a7b11", "0b2d1c1e-6a8e-4f0e-9d55-3a5f6f2a7b12"
	s := metadata.Statement{Name: "a", UUID: mine, Token: 7, Cause: metadata.CauseProcessEnded}
	kv := protocol.KV{Value: []byte(protocol.Marshal(s)), ModRevision: 9}
	if got := protocol.DecodeStatement(mine, kv); got == nil || got.UUID != mine || got.Revision != 9 {
		t.Errorf("of its own hold: %+v", got)
	}
	if got := protocol.DecodeStatement(other, kv); got != nil {
		t.Errorf("below the key of another hold: %+v", got)
	}
}

// Many long tickets would else take as much memory as etcd gives them space.
func TestCutTextDoesNotKeepTheRest(t *testing.T) {
	value := []byte(`{"purpose":"` + strings.Repeat("x", 60_000) + `"}`)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var kept []metadata.Waiter
	for range 200 {
		kept = append(kept, protocol.DecodeTicket(protocol.Key{}, protocol.KV{Value: value}))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if n := int64(after.HeapAlloc) - int64(before.HeapAlloc); n > 2<<20 {
		t.Errorf("%d tickets, with purposes of %d bytes, keep %d bytes", len(kept), len(kept[0].Purpose), n)
	}
}
