#!/bin/sh
# Runs the tests in dash and bash, and the README's example, each with an etcd of its own. Needs Go for that etcd.
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$root"
go build -o "$work/etcdserver" ./test/etcdserver

# The etcd ends with its standard input, which this shell holds.
with_etcd() {
	mkfifo "$work/in"
	"$work/etcdserver" <"$work/in" >"$work/out" 2>"$work/log" &
	exec 9>"$work/in"
	until [ -s "$work/out" ]; do sleep 0.1; done
	MUTEXCTL_ETCD_ENDPOINTS=$(head -n 1 "$work/out")
	export MUTEXCTL_ETCD_ENDPOINTS
	"$@" 9>&- || { cat "$work/log" >&2; exit 1; }
	exec 9>&-
	wait
	rm "$work/in" "$work/out"
}

for shell in dash bash; do
	SHELL_UNDER_TEST=$shell with_etcd "$shell" clients/shell/test/test.sh "$root/docs/protocol/transactions.json"
	with_etcd "$shell" clients/shell/test/readme.sh
done
