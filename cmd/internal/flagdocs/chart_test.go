package flagdocs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/cmd/internal/unlocker"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// In these groups, the chart makes a flag of each value, by its name. So the values are made of the flags.
func TestChartValuesMatchTheFlags(t *testing.T) {
	const chart = "../../../deploy/helm/unlocker/"
	for group, indent := range map[string]string{"sweep": "", "metrics": "  ", "history": "  "} {
		var values string
		var schema []string
		margin := strings.Repeat(" ", 8+2*len(indent))
		unlocker.Command().Flags().VisitAll(func(f *pflag.Flag) {
			if !strings.HasPrefix(f.Name, group+".") {
				return
			}
			name, preset, kind := chartValue(t, f)
			values += fmt.Sprintf("%[1]s  # %[2]s\n%[1]s  %[3]s: %[4]s\n", indent, chartComment(f), name, preset)
			schema = append(schema, fmt.Sprintf("%s%q: {%s}", margin, name, kind))
		})
		proctest.GoldenPart(t, chart+"values.yaml", *update,
			`\n`+indent+group+`:\n((?:`+indent+`  .*\n)+)`, values)
		proctest.GoldenPart(t, chart+"values.schema.json", *update,
			`"`+group+`": \{\n.*\n.*\n *"properties": \{\n((?:`+margin+`.*\n)+)`, strings.Join(schema, ",\n")+"\n")
	}
}

// chartValue returns a flag as a value: its name, its default and its schema. Words and lists have a definition there.
func chartValue(t *testing.T, f *pflag.Flag) (name, preset, kind string) {
	_, name, _ = strings.Cut(f.Name, ".")
	name = regexp.MustCompile(`-.`).ReplaceAllStringFunc(name, func(s string) string { return strings.ToUpper(s[1:]) })
	switch f.Value.Type() {
	case "bool":
		return name, "false", `"type": "boolean"`
	case "int":
		return name, "null", `"type": ["integer", "null"], "minimum": 0`
	case "duration":
		return name, `""`, `"$ref": "#/definitions/duration"`
	case "string":
		return name, `""`, `"$ref": "#/definitions/` + name + `"`
	case "stringSlice": // comma-separated
		name += "s"
		fallthrough
	case "stringArray":
		return name, "[]", `"$ref": "#/definitions/` + name + `"`
	}
	t.Fatalf("--%s has the type %s, which the chart cannot pass on", f.Name, f.Value.Type())
	return
}

// chartComment returns the help of a flag as a sentence, without what only a command line can do.
func chartComment(f *pflag.Flag) string {
	_, help := pflag.UnquoteUsage(f)
	help = regexp.MustCompile(`; (comma-separated or repeated|repeatable)`).ReplaceAllString(help, "")
	return strings.ToUpper(help[:1]) + help[1:] + "."
}
