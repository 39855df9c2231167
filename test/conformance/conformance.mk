# Every client against docs/protocol.md: docs/conformance.md.

CLIENT ?=
CASE ?= .

.PHONY: conformance
conformance: ## all clients, alone and in pairs, against the protocol; CLIENT=clients/python CASE='order' for a part
	go test -tags conformance -count=1 -timeout 60m ./test/conformance -run 'Test.*/$(CASE)' -args -clients '$(CLIENT)'

.PHONY: conformance-short
conformance-short: ## the part of it that CI runs
	go test -tags conformance -count=1 -timeout 10m -short ./test/conformance -args -clients '$(CLIENT)'
