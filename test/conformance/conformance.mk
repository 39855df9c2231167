# Every client against docs/protocol.md: docs/conformance.md.

CLIENT ?=
CASE ?=
MATRIX ?=
CONFORMANCE = cd test/conformance && go test -tags conformance -count=1

.PHONY: conformance
conformance: ## all clients, alone and in pairs, against the protocol; CLIENT=clients/python CASE='ghost.*' for a part
	$(CONFORMANCE) -timeout 90m -parallel 6 -run '$(if $(CASE),^TestConformance$$/^($(CASE))$$,.)' \
		-args -clients '$(CLIENT)' -matrix '$(abspath $(MATRIX))'

.PHONY: conformance-short
conformance-short: ## the part of it that CI runs
	$(CONFORMANCE) -timeout 15m -parallel 6 -short -args -clients '$(CLIENT)'
