package unlocker

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// checkLabelAttributes returns an error for attributes that cannot become labels of the series of locks.
func checkLabelAttributes(names []string) error {
	const flag = "--metrics.label-attribute"
	for i, name := range names {
		switch {
		case !isLabelName(name):
			return fmt.Errorf("%s cannot be %q: it must be the name of a label, such as team", flag, name)
		case slices.Contains(ownLabels(), name):
			return fmt.Errorf("%s cannot be %q: series or alerts have that label already", flag, name)
		case slices.Contains(names[:i], name):
			return fmt.Errorf("%s has %q twice", flag, name)
		}
	}
	return nil
}

func isLabelName(name string) bool {
	return regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`).MatchString(name) && !strings.HasPrefix(name, "__")
}

// ownLabels returns the labels that the series of locks, and alerts about them, always have.
func ownLabels() []string {
	return []string{"alertname", "severity", "lock", "locks", "holders", "owner", "hostname", "cause", "purpose",
		"state", "cluster", "namespace", "job", "instance"}
}
