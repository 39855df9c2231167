// Package deploy holds the files that operators install, so that the programs can print them.
package deploy

import _ "embed" // the rules

// Rules are the alerts for Prometheus.
//
//go:embed prometheus/unlocker.rules.yaml
var Rules []byte
