package protocol_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const sweep = `{"clock_skew":5,"min_warning":30.25,"default_alert_after":3600,"default_auto_unlock_after":0,` +
	`"abandoned":"unlock","abandoned_grace":0.01,"lock_delay":0,"exclude":["db/*"],"later":[{}]}`

// presence is a record that is well but for these members.
func presence(members string) string {
	return `{"id":"x","mode":"auto-unlock","now":"1553682600",` + members + `}`
}

func TestAPresenceRecordIsReadAsFarAsItCanBe(t *testing.T) {
	want := &metadata.Sweep{ClockSkew: metadata.Seconds(5 * time.Second),
		MinWarning:        metadata.Seconds(30250 * time.Millisecond),
		DefaultAlertAfter: metadata.Seconds(time.Hour), Abandoned: metadata.SweepUnlock,
		AbandonedGrace: metadata.Seconds(10 * time.Millisecond), Exclude: []string{"db/*"}}
	without := func(old, new string) string { return `"sweep":` + strings.Replace(sweep, old, new, 1) }
	for name, c := range map[string]struct {
		value string
		read  bool
		sweep *metadata.Sweep
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
			p := protocol.ReadPresence("eu-1", []byte(c.value))
			if (p != nil) != c.read {
				t.Fatalf("read %+v", p)
			}
			if p != nil && (p.ID != "eu-1" || !reflect.DeepEqual(p.Sweep, c.sweep)) {
				t.Errorf("read %+v, with %+v", p, p.Sweep)
			}
		})
	}
	long := protocol.ReadPresence(strings.Repeat("i", 5000), []byte(presence(`"hostname":"`+strings.Repeat("é", 5000)+
		`","held_back":["`+strings.Repeat("x", 5000)+`"`+strings.Repeat(`,"gap"`, 100)+`]`)))
	if len(long.ID) > metadata.MaxTextBytes || len(long.Hostname) > metadata.MaxTextBytes || len(long.HeldBack) != 16 ||
		len(long.HeldBack[0]) > metadata.MaxTextBytes {
		t.Errorf("texts are kept whole: %d %d %d", len(long.ID), len(long.Hostname), len(long.HeldBack))
	}
}
