#!/bin/sh
# A job of the demo, in shell: the posters go to the backup, bucket by bucket.
# Arguments: a directory with mutex.sh, the URL of etcd, and how much faster than normal time passes.

. "$1/mutex.sh"
MUTEXCTL_ETCD_ENDPOINTS=$2
pace=$3
export MUTEXCTL_ETCD_ENDPOINTS pace

# The process group ends with standard input, which ends when mutexdev does, however that ends.
exec 5<&0
end_with_mutexdev() {
	cat >/dev/null
	kill -TERM $$ # mutex_run stops its command and releases the lock
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		kill -0 $$ || break
		sleep 0.3
	done
	kill -KILL 0
}
end_with_mutexdev <&5 2>/dev/null &
exec 5<&-

rest() { sleep "$(jq -n "$1 / $pace")"; }

while :; do
	mutex_run backup/posters --owner operations --purpose 'backup of the posters' --expect 2m --quiet -- \
		sh -c 'sleep "$(jq -n "60 / $pace")"' || [ $? = 5 ] || exit # 5: it was lost; somebody forced the unlock, say
	rest 4
done
