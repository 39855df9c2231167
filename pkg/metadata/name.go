package metadata

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxNameBytes is the length of the longest lock name.
const MaxNameBytes = 256

// CheckName says what is wrong with a lock name, or nil: 1 to 256 bytes of valid UTF-8 without control characters.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("the lock name is empty")
	case len(name) > MaxNameBytes:
		return fmt.Errorf("the lock name has %d bytes, at most %d are allowed", len(name), MaxNameBytes)
	case !utf8.ValidString(name):
		return errors.New("the lock name is not valid UTF-8")
	case strings.ContainsFunc(name, unicode.IsControl):
		return errors.New("the lock name contains a control character")
	}
	return nil
}

// EncodeName writes a lock name as one path segment: "%" as "%25", "/" as "%2F", a leading "." as "%2E", nothing else. So no
// lock's keys can lie inside another lock's, and the areas of the protocol, which begin with a dot, are out of its reach.
func EncodeName(name string) string {
	if !strings.ContainsAny(name, "%/") && !strings.HasPrefix(name, ".") {
		return name
	}
	segment := strings.NewReplacer("%", "%25", "/", "%2F").Replace(name)
	if strings.HasPrefix(segment, ".") {
		segment = "%2E" + segment[1:]
	}
	return segment
}

// DecodeName reads a path segment back. It fails for a segment that EncodeName never writes ("%41", "a%2fb", ""), so that two
// different keys can not pass for the same lock. The name may still be one that [CheckName] refuses.
func DecodeName(segment string) (string, error) {
	name := strings.NewReplacer("%25", "%", "%2F", "/", "%2E", ".").Replace(segment)
	if segment == "" || EncodeName(name) != segment {
		return "", fmt.Errorf("%q is not an encoded lock name", clip(segment))
	}
	return name, nil
}
