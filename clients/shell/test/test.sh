#!/bin/sh
# The tests of mutex.sh, to be run in any POSIX sh: test.sh TRANSACTIONS.JSON, with an etcd at MUTEXCTL_ETCD_ENDPOINTS.
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
is_held() { [ "$(keys "/mutexes/$1/")" != 0 ]; }
waits() { [ "$(keys "/mutexes/.queue/$1/")" = "$2" ]; } # the keys of its queue: tickets and tail

trace_of() { post /v3/kv/range "$(key "/mutexes/$1/metadata")" | jq -r '.kvs[0].value | @base64d | fromjson | .backtrace'; }

# Every body and verdict of the protocol.
is transactions "$(jq -r --arg prefix /mutexes/ "$_mutex_program"'
	(.transactions[] | .step as $step | .body as $want | (.input | body($step)) as $got
		| select($got != $want) | "\(.step): \(.about): \($got)"),
	(.verdicts[] | .step as $step | .answer as $answer | ({ doubt: false } + (.input | verdict($step; $answer))) as $got
		| to_entries[] | .key as $key | select($key | . == "about" or . == "step" or . == "input" or . == "answer" | not)
		| select(.value != $got[$key]) | "\($step) \($key): \($got)")' "$1")" ''
is 'number of verdicts' "$(jq '.verdicts | length > 100' "$1")" true

# The verdicts that are reached without jq are those of jq. tried: how many there were.
jq -r '.verdicts[] | select(.answer.status == 200) | "\(.step) \(.verdict) \(.token // if .verdict == "still_held" then .answer.body.header.revision else "-" end) \(.answer.text // (.answer.body | tojson))"' \
	"$1" >"$work/verdicts"
tried=0
while read -r step want number text; do
	for answer in "$text
200" "$(printf '%s' "$text" | sed 's/,"/, "/g')
200"; do
		v_token='' v_reported=''
		if _mutex_succeeded "$step"; then
			tried=$((tried + 1))
			is "$step without jq" "$v_verdict ${v_token:-${v_reported:--}}" "$want $number"
		fi
	done
done <"$work/verdicts"
is 'steps that succeed without jq' $tried 20
# shellcheck disable=SC2034 # for _mutex_succeeded
for answer in '{"header":{"revision":"7"},"responses":[{"response_txn":{"header":{},"succeeded":true}}]}
200' '{"header":{"revision":"7"},"succeeded":true}
503' '{"header":{"revision":"7"},"succeeded":true,"resp
200' '{"header":{},"succeeded":true}
200'; do
	if _mutex_succeeded acquire; then is "success by $answer" yes no; fi
done

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
	jq -r '.kvs[0].value | @base64d | fromjson | "\(.purpose) \(.build) \(.client) \(.pid)"')" "it's for 10 % 12 shell/0.2.0 $$"
is token "$(mutex_token)" "$MUTEX_TOKEN"
trace=$(trace_of a%2Fb) script=$(cd "$here/test" && pwd)/test.sh
if [ -n "${BASH_VERSION:-}" ]; then
	is 'the frame of the caller' "$(printf '%s' "$trace" | sed 's|/\.\./test/|/|; s/:[0-9]* in /:LINE in /')" "$script:LINE in main"
	is 'its line' "$(sed -n "$(printf '%s' "$trace" | sed 's/.*:\([0-9]*\) in .*/\1/;q')p" "$script" | cut -d ' ' -f 1,2)" 'mutex_lock a/b'
else
	is 'the script' "$(printf '%s' "$trace" | head -n 1)" "$script"
	is 'what started it' "$(printf '%s' "$trace" | tail -n 1)" "started by $(cat /proc/$PPID/comm)"
fi
first=$MUTEX_TOKEN hold=$MUTEX_HOLD
mutex_alive '3 of 9' || is alive $? 0
is progress "$(post /v3/kv/range "$(key '/mutexes/a%2Fb/alive')" | jq -r '.kvs[0].value | @base64d | .[-6:]')" '3 of 9'
mutex_lock a/b --wait 0 2>"$work/refusal"
is refusal $? 3
is error "$(printf '%s' "$MUTEX_ERROR" | jq -r '"\(.error) \(.holder.purpose) \(.waiting)"')" "held it's for 10 % 0"
is message "$(grep -c "is held by test.sh on .* for \"it's for 10 %\"" "$work/refusal")" 1
is 'the hold is untouched' "$MUTEX_HOLD" "$hold"
mutex_lock a/b --wait 0.3 --quiet 2>/dev/null
is timeout $? 3
is 'error of a timeout' "$(printf '%s' "$MUTEX_ERROR" | jq -r .error)" timeout
waits a%2Fb 0 || is 'the queue after giving up' full empty
mutex_lost >/dev/null && is lost yes no
mutex_unlock || is unlock $? 0
is_free a%2Fb || is record there gone
mutex_lock a/b --wait 0 || is again $? 0
[ "$MUTEX_TOKEN" -gt "$first" ] || is 'the next token' "$MUTEX_TOKEN" "more than $first"

# jq takes longer to start than all else, so it is started rarely: for the settings and the record; besides, the keeper
# may have read the record.
mkdir "$work/bin"
printf '#!/bin/sh\necho >>"%s"\nexec "%s" "$@"\n' "$work/started" "$(command -v jq)" >"$work/bin/jq"
chmod +x "$work/bin/jq"
(PATH=$work/bin:$PATH && mutex_lock few --wait 0 && mutex_unlock) || is 'a lock with few processes' refused held
started=$(wc -l <"$work/started")
[ "$started" -ge 2 ] && [ "$started" -le 3 ] || is 'times that jq was started' "$started" '2 or 3'

# A hold that ends while its keeper begins leaves neither words nor processes.
(for _ in 1 2 3 4 5 6 7 8 9 10; do
	mutex_lock short --wait 0 --quiet && mutex_unlock
done) 2>"$work/said"
is 'what short holds say' "$(cat "$work/said")" ''

# The ticket that some keep while they hold the lock waits for nothing.
post /v3/kv/put "$(key "/mutexes/.queue/a%2Fb/$MUTEX_UUID")" >/dev/null
mutex_lock a/b --wait 0 2>/dev/null
is 'who waits' "$(printf '%s' "$MUTEX_ERROR" | jq .waiting)" 0
post /v3/kv/deleterange "$(key "/mutexes/.queue/a%2Fb/$MUTEX_UUID")" >/dev/null

# Lost.
post /v3/kv/deleterange "$(key /mutexes/a%2Fb/uuid)" >/dev/null
within 'the loss is noticed' mutex_lost >/dev/null
is reason "$(mutex_lost)" deleted
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

# What the environment says of the pod is believed beside the name or uid of one.
members() { (CONTAINER_NAME=main POD_NAME=$1 && export CONTAINER_NAME POD_NAME && jq -nc --arg prefix / "$_mutex_program pod"); }
is 'outside of a pod' "$(members '')" '{}'
is 'in a pod' "$(members web-0)" '{"pod_name":"web-0","container":"main"}'
is 'in a pod with an odd name' "$(members 'web
0')" '{}'
is 'a short backtrace' "$(jq -nr --arg prefix / "$_mutex_program"'"a:1 in f\nb:2 in g\n" | backtrace(60000)')" 'a:1 in f
b:2 in g'
is 'a long backtrace' "$(jq -nr --arg prefix / "$_mutex_program"'[range(3000) | "/srv/run.sh:\(.) in f\n"] | add | backtrace(60000)
	| "\(utf8bytelength <= 16384) \(split("\n") | length > 600) \(endswith(" in f\n... cut\n"))"')" 'true true true'
is 'no room for a backtrace' "$(jq -nr --arg prefix / "$_mutex_program"'"a:1 in f\n" * 2000 | backtrace(100)')" ''

# A command.
is output "$(echo in | mutex_run job -- sh -c 'cat; echo "$MUTEX_NAME"; exit 0')" "in
job"
mutex_run job -- sh -c 'exit 7'
is status $? 7
# shellcheck disable=SC2016 # for the command
mutex_run job -- sh -c '. "$1/mutex.sh"; mutex_alive "1 of 2" && [ "$(mutex_token)" = "$MUTEX_TOKEN" ]' sh "$here"
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

# The record says which process the command is, and its lock waits in the queue.
mutex_run job -- sh -c 'echo $$ >"$1/pid"; until [ -e "$1/go" ]; do sleep 0.1; done' sh "$work" &
one=$!
within 'the command runs' test -s "$work/pid"
is 'pid and start' "$(post /v3/kv/range "$(key /mutexes/job/metadata)" |
	jq -r '.kvs[0].value | @base64d | fromjson | "\(.pid) \(.process_start)"')" \
	"$(cat "$work/pid") $(sed 's/.*) //' "/proc/$(cat "$work/pid")/stat" | cut -d ' ' -f 20)"
mutex_run job --quiet -- touch "$work/second" &
two=$!
within 'the second waits' waits job 2
[ ! -e "$work/second" ] || is 'the second' running waiting
touch "$work/go"
wait $one
is first $? 0
wait $two
is second $? 0
[ -e "$work/second" ] || is 'the second' missing run
is_free job || is job held free

# The lock is lost: TERM, and KILL for what ignores it.
rm -f "$work/pid"
mutex_run job --grace 0.2 -- sh -c 'trap "" TERM; echo $$ >"$1/pid"; while :; do sleep 0.1; done' sh "$work" 2>/dev/null &
one=$!
within 'the command runs' test -s "$work/pid"
post /v3/kv/deleterange "$(key /mutexes/job/uuid)" >/dev/null
wait $one
is 'a lost lock' $? 5
kill -0 "$(cat "$work/pid")" 2>/dev/null && is 'the command' running killed
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
kill -0 "$(cat "$work/pid")" 2>/dev/null && is 'the command' running ended

within 'nothing is left behind' sh -c '! ls -d "$1"/mutex.* 2>/dev/null >&2' sh "$work" 2>/dev/null
rm -rf "$work"
[ $bad = 0 ] && echo ok
exit $bad
