package protocol

import (
	"fmt"
	"strings"

	"github.com/clustermutex/unlocker/internal/text"
)

// maxQuoted is how many bytes of outside text an error quotes.
const maxQuoted = 40

// EncodeName writes a lock name as one path segment: "%" as "%25", "/" as "%2F", a leading "." as "%2E", nothing else.
// So no lock's keys can lie inside another lock's, and no lock can reach the areas of the protocol, which begin with a
// dot.
func EncodeName(name string) string {
	if !strings.ContainsAny(name, "%/") && !strings.HasPrefix(name, ".") {
		return name
	}
	segment := make([]byte, 0, len(name)+8)
	for i := range len(name) {
		switch c := name[i]; {
		case c == '%':
			segment = append(segment, "%25"...)
		case c == '/':
			segment = append(segment, "%2F"...)
		case c == '.' && i == 0:
			segment = append(segment, "%2E"...)
		default:
			segment = append(segment, c)
		}
	}
	return string(segment)
}

// DecodeName reads a path segment back. It fails for a segment that EncodeName never writes ("%41", "a%2fb", ""), so
// that two different keys cannot denote the same lock. The name may still be one that [metadata.CheckName] refuses.
func DecodeName(segment string) (string, error) {
	if segment == "" || segment[0] == '.' || strings.Contains(segment, "/") {
		return "", notEncoded(segment)
	}
	if !strings.Contains(segment, "%") {
		return segment, nil
	}
	name := make([]byte, 0, len(segment))
	for i := 0; i < len(segment); i++ {
		if segment[i] != '%' {
			name = append(name, segment[i])
			continue
		}
		switch escape := segment[i:min(i+3, len(segment))]; {
		case escape == "%25":
			name = append(name, '%')
		case escape == "%2F":
			name = append(name, '/')
		case escape == "%2E" && i == 0:
			name = append(name, '.')
		default:
			return "", notEncoded(segment)
		}
		i += 2
	}
	return string(name), nil
}

func notEncoded(segment string) error {
	return fmt.Errorf("%q is not an encoded lock name", text.Clip(segment, maxQuoted))
}
