# The shell client: clients/shell/README.md.

.PHONY: client-shell
client-shell: ## the shell client: shellcheck, its tests in dash and bash against an etcd, its README's example
	.ci/need curl curl && .ci/need jq jq && .ci/need dash dash && .ci/need shellcheck shellcheck
	cd clients/shell && shellcheck -x -s sh -e SC2016,SC2015,SC2086,SC2154 mutex.sh conformance/run test/test.sh test/readme.sh test/run.sh
	clients/shell/test/run.sh
