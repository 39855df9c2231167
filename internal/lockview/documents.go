package lockview

import (
	"strings"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// document decodes one of the protocol's documents; ok reports whether it could be read.
func document[T metadata.Ticket | metadata.Ending](value []byte) (d T, ok bool) {
	if len(value) > metadata.MaxRecordBytes { // valid ones are never that large, and decoding costs time
		return d, false
	}
	read, err := protocol.Unmarshal[T](value)
	if err != nil {
		return d, false
	}
	return read, true
}

// clip cuts text from outside to the longest that the protocol allows.
func clip(s string) string {
	if len(s) <= metadata.MaxTextBytes {
		return s
	}
	return strings.ToValidUTF8(strings.Clone(s[:metadata.MaxTextBytes]), "")
}
