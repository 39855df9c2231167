# Every client against docs/protocol.md: docs/conformance.md.

CLIENT ?=
CASE ?=
# Python by its own path: where python3 is a script that looks for it, each of a hundred drivers would start that first.
CONFORMANCE = export PYTHON="$${PYTHON:-$$(python3 -c 'import sys; print(sys.executable)')}"; cd test/conformance && go test -tags conformance -count=1
# What differs between Python's two fronts: connections, cancelling, the end of the process.
ASYNCIO = ghost.*|giving up|counter, 4 % lost|permits counted|several together|orderly end|a wait bounds the call|force unlock

.PHONY: conformance
conformance conformance-short: export RUN = $(if $(CASE),^TestConformance$$/^($(CASE))$$,$(if $(CLIENT),^Test(Conformance|Pool)$$,.))
conformance: ## all clients, alone and in pairs, against the protocol; CLIENT=clients/python CASE='ghost.*' for a part
	$(CONFORMANCE) -timeout 90m -parallel 6 -run "$$RUN" -args -clients '$(CLIENT)'

.PHONY: conformance-short
conformance-short: build ## the part of it that CI runs
	$(CONFORMANCE) -timeout 15m -parallel 12 -short -run "$$RUN" -args -clients '$(CLIENT)' -programs '$(CURDIR)/bin'
	[ -n '$(CLIENT)' ] || { export CLUSTERMUTEX_FRONT=asyncio; $(CONFORMANCE) -timeout 5m -parallel 12 -short -run '^TestConformance$$/^($(ASYNCIO))$$' \
		-args -clients clients/python -programs '$(CURDIR)/bin'; }
