package text

import (
	"fmt"
	"maps"
	"slices"
)

// Attributes are the attributes of a record that become labels of metrics, in the order of the labels. The zero value
// has none.
type Attributes struct{ labels, names []string }

// NewAttributes returns those of a map from label to attribute.
func NewAttributes(byLabel map[string]string) (a Attributes) {
	a.labels = slices.Sorted(maps.Keys(byLabel))
	for _, label := range a.labels {
		a.names = append(a.names, byLabel[label])
	}
	return a
}

// Labels returns the names of the labels.
func (a Attributes) Labels() []string { return a.labels }

// Values returns the value of each label. That of an attribute which the record does not have is empty, which
// Prometheus takes for no label.
func (a Attributes) Values(attributes map[string]any) []string {
	values := make([]string, len(a.names))
	for i, name := range a.names {
		if value, has := attributes[name]; has {
			values[i] = Label(fmt.Sprint(value))
		}
	}
	return values
}
