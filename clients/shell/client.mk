# The shell client: clients/shell/README.md.

.PHONY: client-shell
client-shell: ## the shell client: shellcheck, its tests in dash, bash and busybox ash against an etcd, its README's example
	.ci/need curl curl && .ci/need jq jq && .ci/need dash dash && .ci/need busybox busybox && .ci/need shellcheck shellcheck
	cd clients/shell && shellcheck mutex.sh conformance/run test/test.sh test/readme.sh test/run.sh
	clients/shell/test/run.sh
