package dashboard_test

import (
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestLocksOfOtherLibrariesAreShownAsWhatTheyAre(t *testing.T) {
	s := busy()
	waits := metadata.Waiter{Name: "theirs/x", ID: "7e2"}
	waits.Owner = "node-8"
	held := metadata.Record{Name: "theirs/x", Token: 4, SeenAt: s.now.Add(-12 * time.Minute),
		Identity: metadata.Identity{Owner: "node-7"}}
	s.leased = []*locks.Row{
		locks.NewLeasedRow(&held, &locks.Leased{Key: "theirs/x/7e1", Waiters: []metadata.Waiter{waits},
			Lease: protocol.Lease{ID: 0x7e1, TTL: time.Minute, Expires: s.now.Add(40 * time.Second), Keys: 3}}),
		locks.NewLeasedRow(&metadata.Record{Name: "theirs/y", Token: 5, SeenAt: s.now},
			&locks.Leased{Key: "theirs/y", Lease: protocol.Lease{ID: 0x7e3, Why: "permission denied"}}),
	}
	d, _ := operated(t, s)
	gone := held
	gone.Name = "theirs/z"
	d.Ended(&gone, new(lockrecord.NewEnding(&gone, metadata.EndingLeaseEnded, "", "", s.now)))
	for path, words := range map[string]string{
		"/?q=state:leased": "Of other libraries|theirs/x|node-7|theirs/y|leased over |ends ",
		"/lock?name=theirs/x": "leased: another lock library holds it|at least 12m ago|kept alive 20s ago|" +
			`with 3 keys|node-8|data-copy="etcdctl lease revoke 7e1"|which deletes all keys of that session`,
		"/lock?name=theirs/y": "one key with a lease, a lock or something registered|" +
			"7e3, time unknown: permission denied",
		"/api/v1/lock?name=theirs/x": "Another lock library holds theirs/x: nothing here ends it.",
		"/waiting":                   `theirs/x|node-8`,
		"/timeline":                  `node-7: at least 12m from`,
		"/lock?name=theirs/z":        "held it for at least 12m",
		"/history":                   `theirs/z|lease-ended|>at least 12m<`,
	} {
		body := get(d, path, "X-Forwarded-User", "chief", "X-Forwarded-Groups", "on-call").Body.String()
		for word := range strings.SplitSeq(words, "|") {
			if !strings.Contains(body, word) {
				t.Errorf("%s does not say %q", path, word)
			}
		}
		if strings.Contains(body, "/unlock?name=theirs") || strings.Contains(body, "force unlock these") {
			t.Errorf("%s offers a force unlock", path)
		}
	}
}

func TestEmptyListSaysWhatItLacks(t *testing.T) {
	const problem = "The locks below a are not current: gone."
	d := newScene().dashboard(t, func(c *app.Config) {
		of(c).others = 11
		c.LeasedProblems = func() []string { return []string{problem} }
	})
	body := get(d, "/").Body.String()
	for _, want := range []string{problem, "11 keys of another lock library below this prefix"} {
		if !strings.Contains(body, want) {
			t.Errorf("the empty list does not say %q: %s", want, body)
		}
	}
	for _, wrong := range []string{"No locks held", " of 0<"} {
		if strings.Contains(body, wrong) {
			t.Errorf("the empty list says %q", wrong)
		}
	}
}
