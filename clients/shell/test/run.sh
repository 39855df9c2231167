#!/bin/sh
# Runs the tests in dash, bash and busybox ash, and the README's example, each with its own etcd. Needs Go for the etcd.
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$root"
go build -o .tools/bin/etcdserver ./test/etcdserver

# The etcd ends with its standard input, which this shell holds.
with_etcd() {
	at=$work/${1##*/}.${2##*/}
	mkdir "$at"
	mkfifo "$at/in" "$at/out"
	.tools/bin/etcdserver <"$at/in" >"$at/out" 2>"$at/log" &
	exec 9>"$at/in"
	read -r MUTEXCTL_ETCD_ENDPOINTS <"$at/out" || { cat "$at/log" >&2; exit 1; }
	export MUTEXCTL_ETCD_ENDPOINTS
	"$@" 9>&- || { cat "$at/log" >&2; exit 1; }
	exec 9>&-
	wait
}

all() {
	export SHELL_UNDER_TEST="$1"
	with_etcd "$1" clients/shell/test/test.sh "$root/docs/protocol/transactions.json"
	with_etcd "$1" clients/shell/test/readme.sh
}

# In parallel, because they mostly wait.
all dash &
dash=$!
all bash &
bash=$!
ln -s "$(command -v busybox)" "$work/ash"
all "$work/ash" &
ash=$!
wait $dash
wait $bash
wait $ash
