package protocol_test

import (
	"testing"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// A reader parses every key it reads.
func BenchmarkParse(b *testing.B) {
	layout, err := protocol.NewLayout(protocol.DefaultPrefix)
	if err != nil {
		b.Fatal(err)
	}
	for name, lock := range map[string]string{"a plain name": "invoice-41",
		"a name with slashes": "billing/invoice/41"} {
		b.Run(name, func(b *testing.B) {
			key := layout.Field(lock, metadata.FieldAutoUnlockAt)
			b.ReportAllocs()
			for b.Loop() {
				if k := layout.Parse(key); k.Lock != lock {
					b.Fatal(k)
				}
			}
		})
	}
}
