package metadata_test

import (
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// typical is a record as the Go client writes it, with a backtrace of 30 frames.
func typical(t testing.TB) []metadata.Field {
	t.Helper()
	at := time.Unix(1_553_682_600, 250_000_000)
	fields, err := metadata.Draft{
		UUID: "6f1f6f5e-5d1c-4e52-9d2e-0a9a3f1c7b11",
		Holder: metadata.Holder{Owner: "billing", Hostname: "billing-7f9c", PID: 17,
			Purpose: "nightly invoices, tenant 41"}, Client: "go/1.0.0",
		LockedAt: at, AlertAt: at.Add(5 * time.Minute), AutoUnlockAt: at.Add(15 * time.Minute),
		Backtrace:  strings.Repeat("example.com/billing/invoice.(*Run).tenant /src/billing/invoice/run.go:118\n", 30),
		Attributes: map[string]any{"tenant": 41, "team": "core"},
	}.Fields()
	if err != nil {
		t.Fatal(err)
	}
	for i := range fields {
		fields[i].CreateRevision, fields[i].ModRevision = 7, 7
	}
	return fields
}
