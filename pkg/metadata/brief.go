package metadata

import (
	"strings"
	"unicode/utf8"
)

// maxRead is how many bytes of a key are read, but for backtraces and metadata documents: as many as the largest value
// that a key may have.
const maxRead = MaxDocumentBytes

// Brief returns the field without what [DecodeRecord] does not read, for readers that keep the fields of all locks:
// backtraces, and most of a value that is too large. The result does not refer to a large value.
func (f Field) Brief() Field { return f.read(true) }

// read returns the field with the part of its value that is read. It is the only place that cuts what a hostile client
// wrote.
func (f Field) read(brief bool) Field {
	switch {
	case f.Size != 0: // done before
		return f
	case f.Name == FieldMetadata && len(f.Value) > MaxRecordBytes:
		return f.with("")
	case f.Name == FieldMetadata && brief:
		return f.with(withoutBacktrace(f.Value))
	case f.Name == FieldMetadata:
		return f
	case f.Name == FieldBacktrace && brief && utf8.ValidString(cut(f.Value, MaxBacktraceBytes)):
		return f.with("")
	case f.Name == FieldBacktrace && brief:
		return f.with("\xff") // as little UTF-8 as the value
	case f.Name == FieldBacktrace, len(f.Value) <= maxRead:
		return f
	}
	return f.with(strings.Clone(f.Value[:maxRead]))
}

// with returns the field with a part of its value.
func (f Field) with(part string) Field {
	if len(part) != len(f.Value) {
		f.Size = len(f.Value)
	}
	f.Value = part
	return f
}

// size returns how many bytes the value has in etcd.
func (f Field) size() int {
	if f.Size != 0 {
		return f.Size
	}
	return len(f.Value)
}
