package lockstore_test

import (
	"slices"
	"testing"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Leftovers of a record alert forever, so a removal has to delete all of it, and no foreign key.
func TestRemovalAmongForeignKeysIsComplete(t *testing.T) {
	t.Parallel()
	w := start(t)
	// What holding a lock writes lies between the keys "a…" and "v…".
	cases := map[string]struct {
		fields, foreign []string
		stays           bool // some of the fields that hold nothing
	}{
		"many fields and one foreign key at the end": {many("f%d", 400), []string{"zz/alive"}, false},
		"many fields around foreign keys": {append(many("a%d", 100), many("v%d", 100)...),
			[]string{"AA", "b/uuid", "m/uuid", "v5/x", "zz/x"}, false},
		"many foreign keys in a row":                       {many("f%d", 60), many("f5/%d", 3000), false},
		"more foreign keys than are read, and no other":    {nil, many("Z%05d", 10_500), false},
		"more foreign keys than are read, and every field": {unwritten(), many("Z%05d", 10_500), false},
		"more between its fields than go at once":          {many("x%02d", 40), many("x%02d-", 40), false},
		"more between its fields than one request takes":   {many("x%03d", 150), many("x%03d-", 150), true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w.TB = t
			for _, remove := range []string{"auto-unlock", "force-unlock"} {
				lock := name + " " + remove
				w.hold(lock, uuid(1))
				w.putFields(lock, slices.Concat(c.fields, c.foreign), "x")
				r := w.record(lock)
				var err error
				if remove == "auto-unlock" {
					err = w.AutoUnlock(t.Context(), []metadata.Removal{removal(r)})[0]
				} else {
					err = w.do(r, action(r))
				}
				if err != nil {
					t.Fatal(err)
				}
				left := w.keys(w.l.Record(lock))
				foreign := 0
				for _, key := range left {
					if w.l.Parse(key).Kind == protocol.KindForeign {
						foreign++
					} else if !c.stays {
						t.Errorf("%s left %s", remove, key)
					}
				}
				if now := w.record(lock); now.UUID != "" {
					t.Errorf("after %s it is held by %s", remove, now.UUID)
				}
				if foreign != len(c.foreign) {
					t.Errorf("%s left %d foreign keys, want %d", remove, foreign, len(c.foreign))
				}
			}
		})
	}
}
