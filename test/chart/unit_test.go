package chart

import (
	"os"
	"testing"

	"github.com/helm-unittest/helm-unittest/pkg/unittest"
	"github.com/helm-unittest/helm-unittest/pkg/unittest/formatter"
	"github.com/helm-unittest/helm-unittest/pkg/unittest/printer"
)

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
