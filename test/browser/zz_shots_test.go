//go:build browser

package browser

import (
	"fmt"
	"testing"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"time"
)

func TestShots(t *testing.T) {
	s := gentleStage(t)
	b := newTab(t)
	s.unlocker("auto-unlock")
	s.night()
	b.login("ann@example.org")
	store := lockstore.New(s.client, s.layout)
	for name, by := range map[string][2]string{held: {"ann@example.org", "looking at the disk of host-7"}, "drm/rotate-keys": {"bob", ""}, "catalog/sync/eu": {"a.very.long.name.of.somebody@a-department.example.org", "a\u202eb <b>x</b> " + fmt.Sprint(make([]int, 120))}} {
		if err := store.Acknowledge(t.Context(), s.record(name), protocol.Action{ID: name[:3], At: metadata.Time{Time: time.Now()}, Actor: by[0], Source: "cli", Action: "acknowledge", Reason: by[1], Seconds: 3600}); err != nil {
			t.Fatal(err)
		}
	}
	for _, theme := range []string{"light", "dark"} {
		for _, w := range []int64{1280, 360} {
			b.size(w, 900)
			b.open(s.url)
			b.theme(theme)
			for what, url := range map[string]string{"list": s.url, "lock": s.url + "lock?name=" + held, "form": s.url + "acknowledge?name=" + held + "&hold=" + s.record(held).UUID} {
				b.open(url)
				b.narrow()
				b.size(w, ask[int64](b, `document.documentElement.scrollHeight`))
				b.picture(fmt.Sprintf("%s-%s-%d", what, theme, w))
				b.size(w, 900)
				ask[bool](b, axe+"; true")
				for _, x := range ask[[]string](b, `axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations.map((v) => v.id + " " + v.nodes.map((n) => n.html).join()))`) {
					t.Error(what, theme, w, x)
				}
			}
		}
	}
}
