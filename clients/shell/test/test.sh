#!/bin/sh
# The tests of mutex.sh, to be run in any POSIX sh: test.sh TRANSACTIONS.JSON, beside which lies vectors.json,
# with an etcd at MUTEXCTL_ETCD_ENDPOINTS.
here=$(dirname "$0")/..
# shellcheck source=../mutex.sh
. "$here/mutex.sh"

bad=0
is() { # WHAT GOT WANT
	if [ "$2" != "$3" ]; then
		printf 'FAIL %s: got %s, want %s\n' "$1" "$2" "$3"
		bad=$((bad + 1))
	fi
}

within() { # WHAT COMMAND...: it succeeds within 30 seconds
	what=$1 tries=0
	shift
	until "$@"; do
		tries=$((tries + 1))
		[ $tries -lt 300 ] || { is "$what" no yes; return; }
		sleep 0.1
	done
}

work=$(mktemp -d)
TMPDIR=$work
export TMPDIR
etcd=$MUTEXCTL_ETCD_ENDPOINTS
post() { curl -sS --data-binary "$2" "$etcd$1"; }
# Without jq, which takes longer to start than all of these together.
b64() { printf '%s' "$1" | base64 -w 0; }
key() { printf '{"key":"%s"}' "$(b64 "$1")"; }
keys() { # PREFIX/: how many there are
	count=$(post /v3/kv/range "{\"key\":\"$(b64 "$1")\",\"range_end\":\"$(b64 "${1%/}0")\",\"count_only\":true}")
	case $count in
	*'"count":'*) count=${count##*'"count":"'} && echo "${count%%'"'*}" ;;
	*'"header":'*) echo 0 ;;
	*) echo "etcd says: $count" ;;
	esac
}
is_free() { [ "$(keys "/mutexes/$1/")" = 0 ]; }
ended() { ! _mutex_runs "$1"; }
is_held() { [ "$(keys "/mutexes/$1/")" != 0 ]; }
is fields "$(jq -c "$_mutex_program"'.fields | [.keys + .keys_of_others, (.keys + .keys_of_others + .members + ["metadata"] | sort)]
	== [reserved[:7], (reserved | sort)]' "${1%/*}/vectors.json")" true
# Every body and verdict of the protocol.
is transactions "$(jq -r --arg prefix /mutexes/ "$_mutex_program"'
	def basic: .input.queued != true and (.step | IN("acquire", "alive", "release", "cancel", "withdraw"));
	(.transactions[] | select(basic) | .step as $step | .body as $want | (.input | body($step)) as $got
		| select($got != $want) | "\(.step): \(.about): \($got)"),
	(.verdicts[] | select(basic) | .step as $step | .answer as $answer | ({ doubt: false } + (.input | verdict($step; $answer))) as $got
		| to_entries[] | .key as $key | select($key | . == "about" or . == "step" or . == "input" or . == "answer" | not)
		| select(.value != $got[$key]) | "\($step) \($key): \($got)")' "$1")" ''
is 'number of verdicts' "$(jq '.verdicts | length > 100' "$1")" true

for pair in 90=9000 0.5=50 1.25=125 10m=60000 24h=8640000 08=800 0=0; do
	_mutex_duration "${pair%=*}"
	is "duration ${pair%=*}" "$cs" "${pair#*=}"
done
for text in '' x 1x -1 1.2.3 1e3 .5; do
	if _mutex_duration "$text"; then is "duration $text" accepted refused; fi
done

# A lock of this shell.
mutex_lock a/b --wait 0 --purpose "it's for 10 %" --attr build=12 || is lock $? 0
is record "$(post /v3/kv/range "$(key '/mutexes/a%2Fb/metadata')" |
	jq -r '.kvs[0].value | @base64d | fromjson | "\(.purpose) \(.build) \(.client) \(.pid) \(.backtrace)"')" \
	"it's for 10 % 12 shell/0.2.0 $$ $0"
first=$MUTEX_TOKEN
mutex_alive '3 of 9' || is alive $? 0
is progress "$(post /v3/kv/range "$(key '/mutexes/a%2Fb/alive')" | jq -r '.kvs[0].value | @base64d | .[-6:]')" '3 of 9'
(unset _mutex_mine && mutex_lock a/b --wait 0 2>"$work/refusal") || is refusal $? 3
other() { (unset _mutex_mine; mutex_lock a/b --quiet "$@" 2>/dev/null; printf '%s ' $?; printf '%s' "$MUTEX_ERROR" | jq -r "$wants"); }
wants='"\(.error) \(.holder.purpose)"'
is refused "$(other --wait 0)" "3 held it's for 10 %"
is message "$(grep -c "is held by test.sh on .* for \"it's for 10 %\"" "$work/refusal")" 1
is 'a wait that is over' "$(other --wait 0.3)" "3 timeout it's for 10 %"
mutex_lock other --wait 0 2>/dev/null
is 'a second lock of this shell' $? 2
mutex_unlock || is unlock $? 0
is_free a%2Fb || is record there gone
mutex_lock a/b --wait 0 || is again $? 0
[ "$MUTEX_TOKEN" -gt "$first" ] || is 'the next token' "$MUTEX_TOKEN" "more than $first"

# Lost.
post /v3/kv/deleterange "$(key /mutexes/a%2Fb/uuid)" >/dev/null
mutex_alive 2>/dev/null
is 'alive of a lost lock' $? 4
mutex_unlock 2>/dev/null
is 'unlock of a lost lock' $? 4
post /v3/kv/deleterange '{"key":"L211dGV4ZXMv","range_end":"L211dGV4ZXMw"}' >/dev/null

# Bad input is not sent.
for name in '' "$(printf 'a\nb')" "$(printf 'a\377b')"; do
	mutex_lock "$name" --wait 0 2>/dev/null
	is 'a bad name' $? 2
done
mutex_lock a --wait soon 2>/dev/null
is 'a bad wait' $? 2
mutex_lock a --expect 20 --auto-unlock-after 10 2>/dev/null
is 'an alert after auto-unlock' $? 2

# The environment describes a pod only if it has a pod's name or uid.
members() { (CONTAINER_NAME=main POD_NAME=$1 && export CONTAINER_NAME POD_NAME && jq -nc --arg prefix / "$_mutex_program pod"); }
is 'outside of a pod' "$(members '')" '{}'
is 'in a pod' "$(members web-0)" '{"pod_name":"web-0","container":"main"}'
is 'in a pod with an odd name' "$(members 'web
0')" '{}'
# A command.
is output "$(echo in | mutex_run job -- sh -c 'cat; echo "$MUTEX_NAME"; exit 0')" "in
job"
mutex_run job -- sh -c 'exit 7'
is status $? 7
# shellcheck disable=SC2016 # for the command
mutex_run job -- sh -c '. "$1/mutex.sh"; mutex_alive "1 of 2" && [ -n "$MUTEX_TOKEN" ]' sh "$here"
is 'alive in the command' $? 0
mutex_run job -- /nonexistent 2>/dev/null
is 'no such command' $? 127
mutex_run job -- /etc/passwd 2>/dev/null
is 'not executable' $? 126
mutex_run job 2>/dev/null
is 'no command' $? 2
mutex_run job --once-per 24h -- echo once >"$work/once"
is once $? 0
mutex_run job --once-per 24h --quiet -- echo twice >>"$work/once"
is 'used up' $? 0
is 'once per period' "$(cat "$work/once")" once
is_free job || is job held free

trap 'echo caught >"$work/caught"' TERM
mutex_run job -- true
kill -s TERM $$
is 'a trap of the script' "$(cat "$work/caught")" caught
trap - TERM

# A traced script.
# shellcheck disable=SC2016 # for that shell
"${SHELL_UNDER_TEST:-sh}" -xc '. "$1/mutex.sh"; mutex_run job -- true' sh "$here" 2>/dev/null
is 'a script with set -x' $? 0

# Another process waits and gets the lock.
mutex_run job -- sh -c 'echo $$ >"$1/pid"; until [ -e "$1/go" ]; do sleep 0.1; done' sh "$work" &
one=$!
within 'the command runs' test -s "$work/pid"
mutex_run job 2>"$work/waits" -- touch "$work/second" &
two=$!
within 'the second waits' grep -q 'waiting: lock "job" is held by' "$work/waits"
[ ! -e "$work/second" ] || is 'the second' running waiting
touch "$work/go"
wait $one
is first $? 0
wait $two
is second $? 0
[ -e "$work/second" ] || is 'the second' missing run
is_free job || is job held free

# The lock is lost: TERM, then KILL for processes that ignore it, although nobody reads stderr.
rm -f "$work/pid"
mkfifo "$work/full"
# shellcheck disable=SC2217 # it is to read nothing
sleep 600 <"$work/full" &
reader=$!
yes >"$work/full" 2>/dev/null &
# shellcheck disable=SC2016 # for the command
deaf='trap "" TERM; echo $$ >"$1/child"; while :; do sleep 0.1; done'
mutex_run job --grace 0.2 -- sh -c 'trap "" TERM; echo $$ >"$1/pid"; sh -c "$2" sh "$1" & wait' sh "$work" "$deaf" 2>"$work/full" &
one=$!
within 'the command runs' test -s "$work/pid"
within 'what it started runs' test -s "$work/child"
post /v3/kv/deleterange "$(key /mutexes/job/uuid)" >/dev/null
within 'the end of the command' ended "$(cat "$work/pid")"
within 'the end of what it started' ended "$(cat "$work/child")"
kill -s KILL "$(cat "$work/pid")" "$(cat "$work/child")" 2>/dev/null
cat "$work/full" >/dev/null &
late=$!
wait $one
is 'a lost lock' $? 5
kill $reader $late
post /v3/kv/deleterange '{"key":"L211dGV4ZXMv","range_end":"L211dGV4ZXMw"}' >/dev/null

# TERM to the shell stops the command, releases the lock, and then ends the shell.
rm -f "$work/pid"
# shellcheck disable=SC2016 # for that shell
script='. "$1/mutex.sh"; mutex_run job -- sh -c "echo \$\$ >\"$2/pid\"; exec sleep 600"; echo "not reached" >"$2/reached"'
"${SHELL_UNDER_TEST:-sh}" -c "$script" sh "$here" "$work" &
one=$!
within 'the command runs' test -s "$work/pid"
kill -s TERM $one
wait $one 2>/dev/null
is TERM $? 143
[ ! -e "$work/reached" ] || is 'after TERM' running ended
is_free job || is 'the lock after TERM' held free

# KILL of the shell: the command does not go on unwatched.
rm -f "$work/pid"
"${SHELL_UNDER_TEST:-sh}" -c "$script" sh "$here" "$work" &
one=$!
within 'the command runs' test -s "$work/pid"
kill -s KILL $one
wait $one 2>/dev/null
within 'the lock after KILL' is_free job
_mutex_runs "$(cat "$work/pid")" && is 'the command' running ended

# A shell that exits releases its lock, unless it is killed or opts out.
ends() { # WHAT HOW [STATUS]; what a shell starts in the background, as this script is, is deaf to INT
	env --default-signal=INT "${SHELL_UNDER_TEST:-sh}" -c ". \"\$1/mutex.sh\"; mutex_lock end --wait 30 --quiet; $2; sleep 600" sh "$here" 2>/dev/null
	is "the end by $1" $? "$3"
}
ends exit 'exit 7' 7
is_free end || is 'the lock after exit' held free
for signal in HUP:129 INT:130 TERM:143; do
	ends $signal "kill -s ${signal%:*} \$\$" "${signal#*:}"
	is_free end || is "the lock after $signal" held free
done
ends 'a trap of its own' 'trap "exit 3" TERM; kill -s TERM $$' 3
is_free end || is 'the lock after a trap of its own' held free
(MUTEX_RELEASE_AT_EXIT=no && export MUTEX_RELEASE_AT_EXIT && ends 'exit without release' 'exit 0' 0)
is_held end || is 'the lock after exit without release' free held
post /v3/kv/deleterange '{"key":"L211dGV4ZXMv","range_end":"L211dGV4ZXMw"}' >/dev/null

# Without etcd, a call ends with its wait and leaves no process behind. Its last attempt may try only one endpoint.
MUTEXCTL_ETCD_ENDPOINTS=http://127.0.0.1:1,http://127.0.0.1:2
for wait in 0 0.5; do
	# shellcheck disable=SC2016 # for that shell
	MUTEXCTL_ETCD_REQUEST_TIMEOUT=5 "${SHELL_UNDER_TEST:-sh}" -c '. "$1/mutex.sh"; mutex_lock "no etcd $3" --wait "$2"' \
		sh "$here" $wait $$ 2>"$work/away"
	is 'without etcd' $? 1
	told=$(sed 's/: Failed[^;]*/: CAUSE/g; s/: Could[^;]*/: CAUSE/g' "$work/away")
	away='mutex.sh: etcd did not answer: http://127.0.0.1:1: CAUSE'
	case $wait in
	0) is 'its message' "$told" "$away; http://127.0.0.1:2: CAUSE" ;;
	*) is 'its message' "${told%%;*}" "$away" ;;
	esac
done
# shellcheck disable=SC2009 # pgrep does not count
is 'processes of failed tries' "$(ps -A -o args= | grep -c "[n]o etcd.* $$\$")" 0
MUTEXCTL_ETCD_ENDPOINTS=$etcd

within 'nothing is left behind' sh -c '! ls -d "$1"/mutex.* 2>/dev/null >&2' sh "$work" 2>/dev/null
rm -rf "$work"
[ $bad = 0 ] && echo ok
exit $bad
