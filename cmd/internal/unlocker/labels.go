package unlocker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
)

// checkLabelAttributes returns an error for attributes that cannot become labels of the series of locks.
func checkLabelAttributes(names []string) error {
	const flag = "--metrics.label-attribute"
	for i, name := range names {
		switch {
		case !model.LegacyValidation.IsValidLabelName(name) || strings.HasPrefix(name, model.ReservedLabelPrefix):
			return fmt.Errorf("%s cannot be %q: it must be the name of a label, such as team", flag, name)
		case slices.Contains(ownLabels(), name):
			return fmt.Errorf("%s cannot be %q: series or alerts have that label already", flag, name)
		case slices.Contains(names[:i], name):
			return fmt.Errorf("%s has %q twice", flag, name)
		}
	}
	return nil
}

// ownLabels returns the labels that the series of locks, and alerts about them, always have.
func ownLabels() []string {
	return []string{"alertname", "severity", "lock", "locks", "holders", "owner", "hostname", "cause", "purpose",
		"state", "cluster", "namespace", "job", "instance"}
}
