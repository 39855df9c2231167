package chart

import (
	"os"
	"testing"

	"github.com/helm-unittest/helm-unittest/pkg/unittest"
	"github.com/helm-unittest/helm-unittest/pkg/unittest/formatter"
	"github.com/helm-unittest/helm-unittest/pkg/unittest/printer"
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

// The suites beside the chart are those of `helm unittest`; this runs them as it does.
func TestSuitesBesideTheChart(t *testing.T) {
	plain := false
	runner := unittest.TestRunner{
		Printer: printer.NewPrinter(os.Stdout, &plain), Formatter: formatter.NewFormatter("", "XUnit"),
		Strict: true, TestFiles: []string{"tests/*_test.yaml"},
	}
	if !runner.RunV3([]string{directory}) {
		t.Error("a suite failed")
	}
}
