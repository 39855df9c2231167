package lockstore_test

import (
	"slices"
	"testing"

	"github.com/clustermutex/unlocker/internal/protocol"
)

// past is what a read of the past reported: the values of the keys at first, and of those that changed since.
func (w world) past(most int64) (standing, since []string) {
	w.Helper()
	err := w.Past(w.Context(), most, func(kv protocol.KV) { standing = append(standing, string(kv.Value)) },
		func(_ int64, events []protocol.Event) {
			for _, e := range events {
				if e.Deleted {
					since = append(since, "deleted")
				} else {
					since = append(since, string(e.KV.Value))
				}
			}
		})
	if err != nil {
		w.Fatal(err)
	}
	return standing, since
}

func TestThePastGoesBackAsFarAsEtcdDoes(t *testing.T) {
	t.Parallel()
	w := start(t, quick)
	if standing, since := w.past(100); standing != nil || since != nil {
		t.Errorf("of an empty etcd: %q, %q", standing, since)
	}
	w.put(w.l.Prefix()+"a", "1")
	w.put(w.l.Prefix()+"b", "2")
	second := w.put(w.l.Prefix()+"a", "3")
	w.put("/other", "9")
	if _, err := w.etcd.Delete(t.Context(), w.l.Prefix()+"b"); err != nil {
		t.Fatal(err)
	}
	w.put("/other", "8") // newer than what is below the prefix

	check := func(most int64, standing, since []string) {
		t.Helper()
		if s, c := w.past(most); !slices.Equal(s, standing) || !slices.Equal(c, since) {
			t.Errorf("%d revisions: at first %q, then %q; want %q, then %q", most, s, c, standing, since)
		}
	}
	check(100, nil, []string{"1", "2", "3", "deleted"})
	check(3, []string{"3", "2"}, []string{"deleted"})
	if _, err := w.etcd.Compact(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	check(100, []string{"3", "2"}, []string{"deleted"})
	check(1, []string{"3"}, nil)
}
