package lockrecord

import (
	"strings"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// maxRead is how many bytes of a key are read, but for backtraces and metadata documents: as many as the largest value
// that a key may have.
const maxRead = MaxDocumentBytes

// Brief returns f without what [DecodeRecord] does not read, for readers that keep the fields of all locks: backtraces,
// and most of a value that is too large. The result does not refer to a large value.
func Brief(f metadata.Field) metadata.Field { return readPart(f, true) }

// readPart returns f with the part of its value that is read. It is the only place that cuts what a hostile client
// wrote.
func readPart(f metadata.Field, brief bool) metadata.Field {
	switch {
	case f.Size != 0: // done before
		return f
	case f.Name == FieldMetadata && len(f.Value) > MaxRecordBytes:
		return withValue(f, "")
	case f.Name == FieldMetadata && brief:
		return withValue(f, withoutBacktrace(f.Value))
	case f.Name == FieldMetadata:
		return f
	case f.Name == FieldBacktrace && brief && utf8.ValidString(cut(f.Value, MaxBacktraceBytes)):
		return withValue(f, "")
	case f.Name == FieldBacktrace && brief:
		return withValue(f, "\xff") // as little UTF-8 as the value
	case f.Name == FieldBacktrace, len(f.Value) <= maxRead:
		return f
	}
	return withValue(f, strings.Clone(f.Value[:maxRead]))
}

// withValue returns f with a part of its value.
func withValue(f metadata.Field, part string) metadata.Field {
	if len(part) != len(f.Value) {
		f.Size = len(f.Value)
	}
	f.Value = part
	return f
}

// sizeOf returns how many bytes the value of f has in etcd.
func sizeOf(f metadata.Field) int {
	if f.Size != 0 {
		return f.Size
	}
	return len(f.Value)
}
