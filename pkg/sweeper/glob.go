package sweeper

import (
	"errors"
	"regexp"
	"strings"
)

// excluder returns a function that tells whether a lock's name matches one of the globs. A star matches slashes, too: who
// writes "billing/*" means billing/invoice/42 as well, and to spare too much is the smaller mistake.
func excluder(globs []string) (func(lock string) bool, error) {
	if len(globs) == 0 {
		return nil, nil
	}
	patterns := make([]string, len(globs))
	for i, glob := range globs {
		if glob == "" {
			return nil, errors.New("an exclude pattern is empty")
		}
		patterns[i] = strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(regexp.QuoteMeta(glob))
	}
	any, err := regexp.Compile(`(?s)^(?:` + strings.Join(patterns, "|") + `)$`)
	if err != nil {
		return nil, err
	}
	return any.MatchString, nil
}
