package compact

import (
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Malformed is [metadata.Record.Malformed].
func (r *Record) Malformed() bool {
	whole := r.whole()
	return whole.Malformed()
}

// Foreign is [metadata.Record.Foreign].
func (r *Record) Foreign() bool {
	whole := r.whole()
	return whole.Foreign()
}

// Written is [metadata.Record.Written].
func (r *Record) Written() time.Time {
	whole := r.whole()
	return whole.Written()
}

// Proven is [metadata.Record.Proven].
func (r *Record) Proven() bool {
	whole := r.whole()
	return whole.Proven()
}

// Disputed is [metadata.Record.Disputed].
func (r *Record) Disputed() bool {
	whole := r.whole()
	return whole.Disputed()
}

// Answered is [metadata.Record.Answered].
func (r *Record) Answered() bool {
	whole := r.whole()
	return whole.Answered()
}

// HistoryID is [metadata.Record.HistoryID].
func (r *Record) HistoryID() string {
	whole := r.whole()
	return whole.HistoryID()
}

// AcknowledgedAt is [metadata.Record.AcknowledgedAt].
func (r *Record) AcknowledgedAt(now time.Time) *metadata.Acknowledgement {
	if r.Acknowledged == nil {
		return nil
	}
	whole := r.whole()
	return whole.AcknowledgedAt(now)
}
