package protocol

import (
	"fmt"
	"strings"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Misplaced takes apart a key that looks like a field of a lock's record, but in a segment that [EncodeName] never
// writes: somebody holds what they take for a lock. place is the key without the field and its "/", such as
// "/mutexes/100%".
func (l Layout) Misplaced(key string) (place, field string, ok bool) {
	rest, ok := strings.CutPrefix(key, l.prefix)
	if !ok {
		return "", "", false
	}
	segment, field, ok := strings.Cut(rest, "/")
	if !ok || !metadata.IsFieldName(field) || strings.HasPrefix(segment, ".") {
		return "", "", false
	}
	if _, err := DecodeName(segment); err == nil {
		return "", "", false
	}
	return key[:len(key)-len(field)-1], field, true
}

// Misplace marks a record that was read at such a place. Its name is the place.
func (l Layout) Misplace(r *metadata.Record) {
	r.Misplaced = true
	segment := strings.TrimPrefix(r.Name, l.prefix)
	r.Problems = append([]metadata.Problem{{Field: "name", Reason: metadata.ReasonBadName,
		Text: fmt.Sprintf("%q is no lock name as the protocol writes it: "+
			"other clients do not see this lock, and nothing removes it", text.Clip(segment, maxQuoted))}},
		r.Problems...)
}
