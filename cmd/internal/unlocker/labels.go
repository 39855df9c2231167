package unlocker

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// maxLabelAttributes is how many attributes may become labels: each lock's record may have others.
const maxLabelAttributes = 5

// labelAttributes returns the attributes of records that become labels of the series of locks, by label.
func labelAttributes(given []string) (map[string]string, error) {
	const flag = "--metrics.label-attribute"
	attributes := map[string]string{}
	for _, entry := range given {
		label, attribute, renamed := strings.Cut(entry, "=")
		if !renamed {
			attribute = label
		}
		switch {
		case !isLabelName(label) || attribute == "":
			return nil, fmt.Errorf("%s cannot be %q: it must be of the form team, or label=attribute", flag, entry)
		case slices.Contains(ownLabels(), label):
			return nil, fmt.Errorf("%s cannot be %q: series or alerts have that label already", flag, entry)
		case attributes[label] != "":
			return nil, fmt.Errorf("%s has two attributes for the label %s", flag, label)
		}
		attributes[label] = attribute
	}
	if n := len(attributes); n > maxLabelAttributes {
		return nil, fmt.Errorf("%s has %d attributes: at most %d become labels", flag, n, maxLabelAttributes)
	}
	return attributes, nil
}

func isLabelName(name string) bool {
	return regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`).MatchString(name) && !strings.HasPrefix(name, "__")
}

// ownLabels are the labels that the series of locks, and the alerts made from them, have anyway.
func ownLabels() []string {
	return []string{"alertname", "severity", "lock", "locks", "holders", "owner", "hostname", "cause", "purpose",
		"state", "cluster", "namespace", "job", "instance"}
}
