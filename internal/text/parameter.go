package text

import (
	"encoding/base64"
	"unicode/utf8"
)

// NameParameter is how the name of a lock travels in the query of a link to the dashboard, before it is escaped. It is
// never part of a path, where proxies decode and merge slashes. A name that is not UTF-8 travels as base64url.
func NameParameter(name string) (key, value string) {
	if utf8.ValidString(name) {
		return "name", name
	}
	return "name_b64", base64.RawURLEncoding.EncodeToString([]byte(name))
}
