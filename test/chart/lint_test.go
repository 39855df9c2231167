package chart

import (
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

func TestLintFindsNothing(t *testing.T) {
	version := chartutil.KubeVersion{Version: kubernetes, Major: "1", Minor: "36"}
	for name, values := range scenarios(t) {
		for _, m := range lint.AllWithKubeVersion(directory, values, "locking", &version).Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}
