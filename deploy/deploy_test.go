package deploy_test

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

var update = flag.Bool("update", false, "write what is derived")

// A template of Alertmanager cannot escape what another one wrote, so the templates for Slack are copies in which every
// value is escaped. Nobody has to keep them alike by hand.
func TestSlackTemplatesEscapeEveryValue(t *testing.T) {
	const file, last = "alertmanager/unlocker.tmpl", `{{ define "unlocker.slack.value" }}`
	text, err := os.ReadFile(file)
	proctest.Must(t, err)
	before, _, _ := strings.Cut(string(text), last)
	proctest.GoldenPart(t, file, *update, regexp.QuoteMeta(last)+`.*\n((?s:.*))`, slack(t, before))
}

// slackened are the templates that have a copy for Slack.
func slackened() []string {
	return []string{"holder", "sentence", "line", "title", "text", "body", "links"}
}

// slack derives the templates for Slack.
func slack(t *testing.T, templates string) string {
	t.Helper()
	var derived strings.Builder
	value := regexp.MustCompile(`\{\{(-?) (\$?\w*\.[\w.]*|\.) (-?)\}\}`)
	for _, name := range slackened() {
		begin := `{{ define "unlocker.` + name + `" -}}` + "\n"
		_, body, found := strings.Cut(templates, begin)
		body, _, ended := strings.Cut(body, "\n{{- end }}\n\n")
		if !found || !ended {
			t.Fatalf("there is no template %s that ends", name)
		}
		body = value.ReplaceAllString(body, `{{$1 template "unlocker.slack.value" $2 $3}}`)
		for _, other := range slackened() {
			body = strings.ReplaceAll(body, `template "unlocker.`+other+`"`, `template "unlocker.slack.`+other+`"`)
		}
		derived.WriteString("\n" + strings.Replace(begin, "unlocker.", "unlocker.slack.", 1) + body + "\n{{- end }}\n")
	}
	return derived.String()
}
