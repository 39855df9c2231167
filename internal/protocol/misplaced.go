package metadata

import (
	"fmt"
	"strings"
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
	if !ok || !fieldName(field) || strings.HasPrefix(segment, ".") {
		return "", "", false
	}
	if _, err := DecodeName(segment); err == nil {
		return "", "", false
	}
	return key[:len(key)-len(field)-1], field, true
}

// Misplace marks a record that was read at such a place. Its name is the place.
func (r *Record) Misplace(l Layout) {
	r.Misplaced = true
	segment := strings.TrimPrefix(r.Name, l.prefix)
	r.Problems = append([]Problem{{Field: "name", Reason: ReasonBadName,
		Text: fmt.Sprintf("%q is no lock name as the protocol writes it: "+
			"other clients do not see this lock, and nothing removes it", clip(segment))}}, r.Problems...)
}
