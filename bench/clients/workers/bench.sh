#!/bin/sh
# Takes and releases a lock as often as each line of standard input says, and prints the microseconds of each. Arguments:
# mutex.sh and the URL of etcd. Reading the clock starts a process: that is about a millisecond of each.

# shellcheck disable=SC1090
. "$1"
export MUTEXCTL_ETCD_ENDPOINTS="$2"

while read -r n; do
	took=''
	while [ "$n" -gt 0 ]; do
		n=$((n - 1))
		began=$(date +%s%N)
		mutex_lock bench/shell --owner bench && mutex_unlock || exit
		took="$took $((($(date +%s%N) - began) / 1000))"
	done
	echo "$took"
done
