#!/bin/sh
# Runs the first example of the README, unchanged, in a directory with mutex.sh and the programs that it calls.
set -eu
client=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$client/mutex.sh" "$work"
for program in report dump migrate; do
	printf '#!/bin/sh\necho %s "$@"\n' $program >"$work/$program.sh"
	chmod +x "$work/$program.sh"
done
cd "$work"

example() { # PAGE: its first block that takes a lock
	awk '/^```sh$/ { inside = 1; block = ""; next }
		/^```$/ { if (inside && block ~ /mutex_run/) { printf "%s", block; exit } inside = 0 }
		inside { block = block $0 "\n" }' "$1" | sed '/MUTEXCTL_ETCD_ENDPOINTS/d' >example.sh
	"${SHELL_UNDER_TEST:-sh}" example.sh
}

expect() { # PAGE OUTPUT
	got=$(example "$1")
	[ "$got" = "$2" ] || { printf 'the example in %s prints\n%s\nwant\n%s\n' "$1" "$got" "$2" >&2; exit 1; }
}

expect "$client/README.md" 'report --month 7
dump
migrate'
