package protocol_test

import (
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func FuzzEncodeName(f *testing.F) {
	for _, name := range []string{"billing", "billing/invoice/42", "100%", ".queue", "%2F", "\xff", "a\x00"} {
		f.Add(name, "billing/")
	}
	l := layout(f)
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" {
			return
		}
		segment := protocol.EncodeName(a)
		if strings.Contains(segment, "/") || strings.HasPrefix(segment, ".") {
			t.Errorf("%q is written %q, which is not one segment outside of the areas", a, segment)
		}
		if got, err := protocol.DecodeName(segment); got != a || err != nil {
			t.Errorf("%q is written %q, which is read %q, %v", a, segment, got, err)
		}
		if a == b {
			return
		}
		if strings.HasPrefix(l.Record(a), l.Record(b)) {
			t.Errorf("the record of %q lies inside the record of %q", a, b)
		}
		if key := l.Field(a, metadata.FieldUUID); key >= l.Record(b) && key < protocol.End(l.Record(b)) {
			t.Errorf("deleting the record of %q takes %q along", b, key)
		}
	})
}

func FuzzDecodeName(f *testing.F) {
	for _, segment := range []string{"billing", "a%2Fb", "%2E", "%25", "a%2fb", "%41", ".", "/", "%"} {
		f.Add(segment)
	}
	f.Fuzz(func(t *testing.T, segment string) {
		name, err := protocol.DecodeName(segment)
		if err == nil && protocol.EncodeName(name) != segment {
			t.Errorf("%q is read %q, which is written %q: two segments for one lock", segment, name,
				protocol.EncodeName(name))
		}
	})
}

func FuzzParseKey(f *testing.F) {
	for _, c := range []string{"billing/uuid", "a/b/uuid", ".queue/a/1", ".history/x", "a/", "/uuid", "%2E/uuid",
		".x/y", ".periods/a%2Fb", ".tasks/a/b%2Fc", ".tasks/a%2Fb/c"} {
		f.Add(protocol.DefaultPrefix + c)
	}
	l := layout(f)
	f.Fuzz(func(t *testing.T, key string) {
		k := l.Parse(key)
		if k.Kind != protocol.KindForeign && build(l, k) != key {
			t.Errorf("%q is %+v, which is built %q", key, k, build(l, k))
		}
		inRecord := k.Kind == protocol.KindField || k.Kind == protocol.KindForeign && k.Lock != ""
		if inRecord != (k.Lock != "" && strings.HasPrefix(key, l.Record(k.Lock))) {
			t.Errorf("%q is %+v", key, k)
		}
	})
}
