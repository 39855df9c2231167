package chart

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
)

// generator makes a scenario of plain durations, numbers and switches, so that a new one needs no line in ci/.
type generator struct {
	t              testing.TB
	chart          *chart.Chart
	schema, values map[string]any
}

// made is what generated returned first: that takes many renderings.
var made map[string]any

func generated(t testing.TB) map[string]any {
	t.Helper()
	if made == nil {
		g := generator{t: t, chart: load(t), values: working(t, "")}
		must(t, json.Unmarshal(g.chart.Schema, &g.schema))
		g.fill(g.schema, g.chart.Values, g.values)
		made = g.values
	}
	return made
}

// fill sets what is not the default, unless the chart refuses it without a value that cannot be generated.
func (g *generator) fill(schema, defaults, group map[string]any) {
	properties, _ := resolved(g.schema, schema)["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		property := properties[name].(map[string]any)
		if preset, ok := defaults[name].(map[string]any); ok && !slices.Contains(free, name) {
			over(group, map[string]any{name: map[string]any{}})
			below := group[name].(map[string]any)
			g.fill(property, preset, below)
			if len(below) == 0 {
				delete(group, name)
			}
		} else if value := other(g.schema, property, defaults[name]); value != nil {
			group[name] = value
			if _, err := render(g.t, g.chart, g.values); err != nil {
				delete(group, name)
			}
		}
	}
}

// other is a value that is not the default, nil for what is neither a duration, a number nor a switch that is off.
func other(root, schema map[string]any, preset any) any {
	kind, _ := json.Marshal(resolved(root, schema)["type"])
	number, _ := preset.(float64)
	switch {
	case schema["$ref"] == "#/definitions/duration":
		return "1m"
	case slices.Contains([]string{`"integer"`, `["integer","null"]`}, string(kind)):
		return number + 1
	case preset == false:
		return true
	}
	return nil
}

// resolved is a part of the schema, or the definition that it refers to.
func resolved(root, schema map[string]any) map[string]any {
	if ref, ok := schema["$ref"].(string); ok {
		definitions := root["definitions"].(map[string]any)
		return definitions[strings.TrimPrefix(ref, "#/definitions/")].(map[string]any)
	}
	return schema
}
