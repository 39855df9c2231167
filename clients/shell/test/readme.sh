#!/bin/sh
# Runs the first example of the README as it stands, in a directory with mutex.sh and the programs that it names.
set -eu
client=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$client/mutex.sh" "$work"
for program in report dump migrate; do
	printf '#!/bin/sh\necho %s "$@"\n' $program >"$work/$program.sh"
	chmod +x "$work/$program.sh"
done
awk '/^```sh$/ { inside = 1; next } /^```$/ { if (inside) exit } inside' "$client/README.md" |
	sed '/MUTEXCTL_ETCD_ENDPOINTS/d' >"$work/example.sh"
cd "$work"
got=$("${SHELL_UNDER_TEST:-sh}" example.sh)
want='report --month 7
dump
migrate'
[ "$got" = "$want" ] || { printf 'the example prints\n%s\nwant\n%s\n' "$got" "$want" >&2; exit 1; }
