package metadata_test

import (
	"testing"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

func FuzzParseTime(f *testing.F) {
	for _, s := range []string{"1553682600", "1553682600.25", "9999999999.999999999", "soon", "-1", "1e9",
		"1553682600.", "0000000000.0"} {
		f.Add(s, "1553682600.5")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		at, err := metadata.ParseTime(a)
		if err != nil {
			return
		}
		if again, err := metadata.ParseTime(metadata.FormatTime(at)); err != nil || again != at {
			t.Errorf("%q is read %v, written and read again %v, %v", a, at, again, err)
		}
		if bt, err := metadata.ParseTime(b); err == nil && at.Before(bt) && a >= b {
			t.Errorf("%v is before %v, but %q is not before %q: alive would refuse a later deadline", at, bt, a, b)
		}
	})
}
