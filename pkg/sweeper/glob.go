package sweeper

import "github.com/clustermutex/unlocker/internal/text"

// excluder returns a function that reports whether a lock's name matches one of the globs; nil without globs.
func excluder(globs []string) (func(lock string) bool, error) {
	if len(globs) == 0 {
		return nil, nil
	}
	names, err := text.Globs(globs...)
	if err != nil {
		return nil, err
	}
	return names.MatchString, nil
}
