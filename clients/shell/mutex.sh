# mutex.sh takes locks in etcd, for POSIX sh with curl and jq: README.md says how. Source it:
#
#	. ./mutex.sh
#	mutex_run nightly/report --purpose 'monthly report' -- ./report.sh
#
# It implements level basic of docs/protocol.md in https://github.com/clustermutex/unlocker. It only adds names that
# begin with mutex, MUTEX or _mutex to your shell: everything else happens in subshells. Times are hundredths of a
# second of a monotonic clock; times in etcd are milliseconds since 1970.
# shellcheck shell=sh

# ---- In jq: from the state {lock, uuid, token, …} to the body of a step, and from its answer to a verdict.

_mutex_program='
def refuse($why): "\($why)\n" | halt_error(2);
def escape: split("%") | join("%25") | split("/") | join("%2F") | if startswith(".") then "%2E" + .[1:] else . end;
def segment:
  if . == "" then refuse("the lock name is empty")
  elif utf8bytelength > 256 then refuse("the lock name has \(utf8bytelength) bytes; at most 256 are allowed")
  elif explode | any(. < 32 or (. > 126 and . < 160)) then refuse("the lock name contains a control character")
  elif index("\ufffd") then refuse("the lock name is not valid UTF-8") else escape end;
def is_time: type == "string" and test("\\A[0-9]{10}(\\.[0-9]{1,9})?\\z");
def time: ([., 9999999999999] | min) as $t | "\($t / 1000 | floor).\($t % 1000 + 1000 | tostring | .[1:])";
def cut($max): if utf8bytelength <= $max then . else .[:$max] | until(utf8bytelength <= $max; .[:-1]) end;
def text($max): if type | IN("string", "number", "boolean") then tostring | cut($max) else null end;
def visible: .[:120] | gsub("[\\p{C}\\p{Zl}\\p{Zp}]"; "\ufffd");
def moment: (tonumber - now | round) as $s | if $s > 0 then "in \($s) s" else "\(-$s) s ago" end;
def unb64: if . == null or . == "" then "" else @base64d end;

# Writing the record.
def reserved: ["uuid", "alert_at", "auto_unlock_at", "alive", "asked", "extended", "acknowledged", "metadata", "owner",
  "hostname", "pid", "locked_at", "purpose", "backtrace", "client", "boot_id", "process_start", "pid_namespace",
  "cgroup_id", "pod_namespace", "pod_name", "pod_uid", "container", "detached", "lock_delay"];
def at_most($max; $what): if . > $max then refuse("\($what): \(.); at most \($max) are allowed") else empty end;
def attribute: (.key | tojson) as $name
  | if .key | test("\\A[a-z][a-z0-9_]{0,62}\\z") | not then refuse("attribute \($name): want a name like build_1")
    elif .key | IN(reserved[]) then refuse("attribute \($name): the name is reserved by the protocol")
    else (.value | utf8bytelength | at_most(1024; "bytes of attribute \($name)")), . end;
# The pod and its container. Without a pod name or uid, the other variables are not from Kubernetes.
def pod:
  { pod_namespace: env.POD_NAMESPACE, pod_name: env.POD_NAME, pod_uid: env.POD_UID, container: env.CONTAINER_NAME }
  | with_entries(select(.value | strings | test("\\A[A-Za-z0-9._-]{1,253}\\z")))
  | if .pod_name or .pod_uid then . else {} end;
def fields($at; $alert; $unlock; $members; $attributes):
  { uuid, alert_at: ($at + ([$alert, $unlock] | min) | time), auto_unlock_at: ($at + $unlock | time),
    metadata: (($members + pod + { locked_at: ($at | time) } | with_entries(select(.value | IN("", null) | not)))
      + ($attributes | with_entries(attribute)) | tojson) }
  | ($members[] | strings | utf8bytelength | at_most(1024; "bytes of owner or purpose")),
    ($attributes | length | at_most(64; "attributes")),
    (to_entries | map((.key + .value) | utf8bytelength) | add | at_most(65536; "bytes of the record")), .;

# Reading the record: field -> text. Lone surrogates are replaced; numbers that JSON lacks make it unreadable.
def document:
  gsub("\\\\(?<e>u[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)";
    if .e | test("\\Au[dD]...\\z") then "\\ufffd" else "\\" + .e end)
  | (try fromjson catch null) | if type == "object" and ([.. | numbers | isnan] | any | not) then . else {} end;
def facts:
  ((.metadata // "" | document | del(.[reserved[:8][]])) + del(.metadata)) as $all
  | [("uuid", "owner", "hostname", "purpose", "pid" | { (.): ($all[.] | text(1024)) }),
     ("alert_at", "auto_unlock_at", "locked_at" | { (.): ($all[.] | text(64) | select(is_time)) })]
  | add | with_entries(select(.value != null));
def ending($token): document | select((.ended | strings | test("\\A[a-z][a-z0-9_]{0,62}\\z"))
  and .token == ($token | tonumber) and all(.by, .why; . == null or type == "string"));
def by: [if (.owner // "") == "" then "an unknown owner" else .owner | visible end,
  (.hostname | strings | " on \(visible)"), (.pid | strings | " (pid \(visible))"),
  (.locked_at | strings | ", taken \(moment)"), (.purpose | strings | select(. != "") | " for \"\(visible)\""),
  (.auto_unlock_at | strings | "; unless extended, it is auto-unlocked \(moment)")] | join("");

# Keys and parts of transactions.
def rec: $prefix + (.lock | segment) + "/";
def beside($area): $prefix + $area + "/" + (.lock | segment);
def compare($key; $target; $member; $value):
  { key: ($key | @base64), target: $target, result: "EQUAL", ($member): $value };
def created($key; $revision): compare($key; "CREATE"; "create_revision"; $revision);
def equals($key; $value): compare($key; "VALUE"; "value"; $value | @base64);
def put($key; $value): { request_put: ({ key: ($key | @base64), value: ($value | @base64) }
  | with_entries(select(.value != ""))) };
def tombstone: .lease as $lease | put($prefix + ".cancelled/" + .uuid; .lock) | .request_put.lease = $lease;
def get($key): { request_range: { key: ($key | @base64) } };
def record: { key: (rec | @base64), range_end: (rec[:-1] + "0" | @base64) };
def puts(keys): . as $in | [keys | put(($in | rec) + .; $in.fields[.])];
def mine: [equals(rec + "uuid"; .uuid), created(rec + "uuid"; .token)];
def why: [{ request_range: record }, get($prefix + ".history/" + .uuid)];
def wipe: { request_delete_range: record };
def body($step):
  if $step == "acquire" then
    { compare: ([rec + "uuid", beside(".queue") + "/.tail", $prefix + ".cancelled/" + .uuid, beside(".delays")]
        | map(created(.; "0"))), success: puts(.fields | keys_unsorted[]),
      failure: [{ request_range: record }, get(beside(".delays"))] }
  elif $step == "alive" then
    { compare: (mine + if (.seen // "") == "" then [] else
        [compare(rec + "alive"; "MOD"; "mod_revision"; .seen)] end),
      success: ([{ request_txn: { compare: [equals(rec + "auto_unlock_at"; .fields.auto_unlock_at) | .result = "LESS"],
        success: puts("alert_at", "auto_unlock_at") } }] + puts("alive")), failure: why }
  elif $step == "release" then { compare: mine, success: [wipe], failure: why }
  elif $step == "cancel" then
    { compare: [equals(rec + "uuid"; .uuid)], success: [tombstone, wipe], failure: [tombstone] }
  elif $step == "withdraw" then { compare: [equals(rec + "uuid"; .uuid)], success: [wipe] }
  elif $step == "read" then { success: why }
  elif $step == "period" then { success: [get(beside(".periods"))] }
  elif $step == "mark" then { compare: (mine + [compare(beside(".periods"); "MOD"; "mod_revision"; .seen)]),
    success: [put(beside(".periods"); .mark)], failure: [get(beside(".periods"))] }
  else error("no step \($step)") end;

# What an answer {status, body}, {status, text}, {none} or {none, unsent} means, given the state behind the request.
def kvs($a; $n): $a.body.responses[$n].response_range.kvs // [];
# The record as read, without foreign keys and leftovers of an earlier hold.
def held($a): rec as $rec
  | [kvs($a; 0)[] | .name = (.key | unb64) | select(.name | startswith($rec)) | .name |= .[($rec | length):]
     | select(.name | test("\\A[a-z][a-z0-9_]{0,62}\\z"))] as $all
  | ([$all[] | select(.name == "uuid")][0]) as $uuid | ($uuid.create_revision // "0") as $token
  | [$all[] | select((.mod_revision // "0" | tonumber) >= ($token | tonumber))] as $keys
  | { uuid: ($uuid.value | unb64), token: $token, is: ($uuid != null),
      fields: ($keys | map({ (.name): (.value | unb64) }) | add // {}),
      alive: ([$keys[] | select(.name == "alive") | .mod_revision][0] // "0") };
def loss($a): held($a).is as $held | .token as $token | [kvs($a; 1)[0].value | unb64 | ending($token)][0]
  | if . then { verdict: "lost", reason: .ended, ended: true, held: $held,
      said: ([(.by | strings | " by \(visible)"), (.why | strings | ": \(visible)")] | join("")) }
    else { verdict: "lost", reason: (if $held then "replaced" else "deleted" end), held: $held } end;
# What an error answer means: [verdict, doubt, message]; null for a result.
def failure($a):
  ($a.body | objects | if .error | type == "object" then .error else . end) // {} | . as $b
  | (if (.code | type) == "number" and has("message") then .code else -1 end) as $code
  | (.message // "" | tostring) as $m | "HTTP \($a.status): \($m | visible)" as $said
  | if $a.none then ["resend", ($a.unsent | not), ""]
    elif $a.status == 200 and ($b.header | type) == "object" then null
    elif $code == -1 then ["resend", true, "HTTP \($a.status), which is not an answer from etcd"]
    elif $code == 16 or $code == 3 and ($m | test("user name is empty|revision of auth store is old"))
      then ["login", false, $said]
    elif $code == 5 and ($m | test("lease")) then ["lease", false, $said]
    elif $code | IN(3, 5, 7, 9) then ["report", false, $said]
    elif $code == 8 and ($m | test("too many requests")) then ["resend", false, $said]
    elif $code == 8 and ($m | test("space exceeded")) then ["full", true, $said]
    else ["resend", true, $said] end;
def result($step; $a): held($a) as $held | $a.body.succeeded as $done | ($held.uuid == .uuid) as $is_mine
  | ($is_mine and $held.token == .token) as $stands
  | if $step == "acquire" and $done then { verdict: "held", token: $a.body.header.revision }
    elif $step == "acquire" and $is_mine then { verdict: "held_by_earlier_send", token: $held.token }
    elif $step == "acquire" then { verdict: "refused", holder: (if $held.is then $held.uuid else null end),
      delayed: (kvs($a; 1) | length > 0), facts: (if $held.is then $held.fields | facts else null end) }
    elif $step == "alive" and $done then { verdict: "still_held" }
    elif $step == "alive" and $stands then { verdict: "again" }
    elif $step == "read" and $stands then { verdict: "still_held", seen: $held.alive,
      alert_at: $held.fields.alert_at, progress: ($held.fields.alive // "" | split(" ")[1:] | join(" ")) }
    elif $step == "release" and $done then { verdict: "released" }
    elif $step == "release" then loss($a) as $loss
      | if $loss.ended or (.unanswered | not) or $is_mine then $loss else { verdict: "released" } end
    elif $step | IN("alive", "read") then loss($a)
    elif $step == "cancel" then { verdict: "cancelled" }
    elif $step == "withdraw" then { verdict: "again" }
    elif $step == "mark" then (.mark == (kvs($a; 0)[0].value | unb64)) as $sent
      | { verdict: (if $done or $sent then "marked" else "late" end) }
    else { verdict: "done", id: $a.body.ID, login: $a.body.token, seen: (kvs($a; 0)[0].mod_revision // "0"),
      mark: (kvs($a; 0)[0].value | unb64 | visible) } end;
def verdict($step; $a): failure($a) as $failure
  | if $failure == null then result($step; $a) else $failure as [$word, $doubt, $message] | { $doubt, $message,
      verdict: (if $word != "full" then $word elif $step == "cancel" then "withdraw" else "resend" end) } end;
def answer: if . == "none" then { none: true } elif . == "unsent" then { none: true, unsent: true }
  else split("\n") | { status: (.[-1] | tonumber) } + ((.[:-1] | join("\n")) as $text
    | try { body: ($text | fromjson) } catch { text: $text }) end;
def assignments: to_entries[]
  | (.value | if . == null then "" elif type == "string" then . else tojson end) as $value
  | "v_\(.key)=\($value | @sh)";
'

# ---- Requests: curl, several endpoints, TLS, login, and a time limit for every call.

# Sets up each subshell: its options and settings. The environment variables are those of mutexctl and etcdctl.
_mutex_setup() {
	set +aeCuvx
	set -f
	_mutex_now
	began=$now
	IFS=' 	
'
	prefix=${MUTEXCTL_LOCKS_PREFIX:-/mutexes}
	prefix=${prefix%/}/
	ca=${MUTEXCTL_ETCD_CACERT:-${ETCDCTL_CACERT:-}}
	cert=${MUTEXCTL_ETCD_CERT:-${ETCDCTL_CERT:-}}
	key=${MUTEXCTL_ETCD_KEY:-${ETCDCTL_KEY:-}}
	user=${MUTEXCTL_ETCD_USER:-${ETCDCTL_USER:-}}
	password=${MUTEXCTL_ETCD_PASSWORD:-${ETCDCTL_PASSWORD:-}}
	case $user in *:*) password=${user#*:} user=${user%%:*} ;; esac
	[ -z "${MUTEXCTL_ETCD_PASSWORD_FILE:-}" ] || password=$(cat "$MUTEXCTL_ETCD_PASSWORD_FILE")
	login='' lease='' seen='' mark='' current=0 endpoints='' v_facts='' v_delayed=false v_reason=''
	_mutex_duration "${MUTEXCTL_ETCD_REQUEST_TIMEOUT:-5}" && timeout=$cs || timeout=500
	for one in $(printf '%s' "${MUTEXCTL_ETCD_ENDPOINTS:-${ETCDCTL_ENDPOINTS:-127.0.0.1}}" | tr ',' ' '); do
		_mutex_endpoint "$one" || _mutex_fail refused 2 "$why" || return
	done
}

_mutex_endpoint() {
	why='an endpoint must not contain a user or password: give them as user and password'
	case $1 in *@*) return 1 ;; *://*) url=${1%/} ;; *) url=http://${1%/} ;; esac
	why="endpoint \"$1\": want http://HOST:PORT or https://HOST:PORT"
	printf '%s' "$url" | grep -Eqx 'https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+])(:[0-9]+)?(/[^?#]*)?' || return
	host=${url#*://}
	host=${host%%/*}
	path=${url#*"$host"}
	case ${host##*]} in *:*) ;; *) host=$host:2379 ;; esac
	endpoints="$endpoints ${url%%:*}://$host$path"
}

# now: by a clock that advances while the machine sleeps; without /proc, the wall clock.
_mutex_now() {
	read -r now _ 2>/dev/null </proc/uptime || now=$(date +%s).00
	now=$((${now%.*} * 100 + 1${now#*.} - 100))
}

# cs: the hundredths of a duration like 90, 0.5, 10m or 24h. Fails for anything else.
_mutex_duration() {
	cs=$(awk -v t="$1" 'BEGIN { if (t !~ /^[0-9]+(\.[0-9]+)?[smhd]?$/ || length(t) > 12) exit 2
		printf "%.0f", t * (t ~ /m$/ ? 6000 : t ~ /h$/ ? 360000 : t ~ /d$/ ? 8640000 : 100) }')
}

_mutex_seconds() { printf '%d.%02d' $(($1 / 100)) $(($1 % 100)); }

_mutex_eval() { # PROGRAM [OPTION...]: jq with the state as input and stdin as $raw
	program=$1
	shift
	jq -Rsrc "$@" --arg prefix "$prefix" --arg lock "$name" --arg uuid "$uuid" --arg token "$token" --arg lease "$lease" \
		--arg seen "$seen" --arg mark "$mark" --argjson unanswered "${unanswered:-false}" "$_mutex_program"'
		. as $raw | { $lock, $uuid, $token, $lease, $seen, $mark, $unanswered } | '"$program"
}

# answer: the text that came back and a line with the status; or unsent or none, and then cause says why.
_mutex_post() { # URL HUNDREDTHS BODY
	limit=$(_mutex_seconds "$2")
	answer=$(printf '%s' "$3" | curl -q -sS --noproxy '*' --max-time "$limit" ${ca:+--cacert "$ca"} \
		${cert:+--cert "$cert" --key "$key"} ${login:+-H @/dev/fd/3} -H 'Content-Type: application/json' -H 'Expect:' \
		-H 'Grpc-Metadata-hasleader: true' --data-binary @- -w '\n%{http_code}' "$1" 2>&1 3<<-HEADER
			Authorization: $login
		HEADER
	) && return
	status=$? cause=$(printf '%s\n' "$answer" | sed -n 's/.*curl: ([0-9]*) //p' | tr -d '[:cntrl:]' | cut -c 1-200)
	answer=none
	case $status in
	28) cause="no answer in $limit s" ;;
	51 | 60) answer=unsent cause="the certificate of ${1%/v3/*} is not trusted: $cause" ;;
	6 | 7 | 35 | 58 | 77) answer=unsent ;;
	esac
}

# v_message: why each endpoint did not answer. Fails if none has a trusted certificate, which waiting will not fix.
_mutex_causes() {
	v_message='' place=0 trusted=''
	for one in $endpoints; do
		eval "cause=\${cause_$place:-}"
		place=$((place + 1))
		case $cause in
		'') trusted=perhaps ;;
		'the certificate of '*) v_message="$v_message; $cause" ;;
		*) trusted=yes v_message="$v_message; $one: $cause" ;;
		esac
	done
	v_message=${v_message#; }
	[ -n "$trusted" ]
}

# Sends the same BODY until an answer settles it; sets v_verdict and others to its meaning. Fails with 1 if the time is
# up, 2 if etcd refuses. unanswered: an earlier send may still be committed.
_mutex_send() { # STEP TILL [BODY [PATH]]
	unanswered=false logins=0 pause=5
	set -- "$1" "$2" "${3:-$(_mutex_eval "body(\"$1\")" </dev/null)}" "${4:-/v3/kv/txn}"
	while :; do
		step=$1 request=$3 path=$4
		if [ -n "$user" ] && [ -z "$login" ]; then # the password must not appear in arguments or files
			step=login path=/v3/auth/authenticate
			request=$(_mutex_a=$user _mutex_b=$password jq -nc '{ name: env._mutex_a, password: env._mutex_b }')
		fi
		_mutex_choose
		_mutex_now
		left=$((($2 - now) / 3 < timeout ? ($2 - now) / 3 : timeout))
		_mutex_post "$endpoint$path" $((left > 10 ? left : 10)) "$request"
		v_verdict=resend v_doubt=false v_message=''
		case $answer in # without jq, which is slow to start
		unsent) ;;
		none) v_doubt=true ;;
		*) eval "$(printf '%s' "$answer" | _mutex_eval "verdict(\"$step\"; \$raw | answer) | assignments")" ;;
		esac
		case $step,$v_verdict in
		login,done) login=$v_login && continue ;;
		login,report) case $v_message in *"not enabled"*) user='' && continue ;; *) return 2 ;; esac ;;
		*,login)
			login='' logins=$((logins + 1))
			[ -n "$user" ] && [ $logins = 1 ] && continue
			return 2
			;;
		*,report | *,lease) return 2 ;;
		*,resend) ;;
		*) return 0 ;;
		esac
		[ $step = login ] || [ "$v_doubt" = false ] || unanswered=true
		eval "cause_$chosen=\${v_message:-\$cause}"
		current=$((current + 1))
		_mutex_causes || return 2
		_mutex_now
		[ "$now" -lt "$2" ] || return 1
		sleep "$(_mutex_seconds $((pause < $2 - now ? pause : $2 - now)))"
		pause=$((pause < 50 ? pause * 2 : 100))
	done
}

# endpoint: the one that answered last, or the next after one that did not; chosen: its index.
_mutex_choose() {
	# shellcheck disable=SC2086 # word splitting is intended
	set -- $endpoints
	chosen=$((current % $#))
	shift $chosen
	endpoint=$1
}

# ---- Take, extend, lose, release: in subshells, with their variables in MUTEX_HOLD.

# Reports an error on stderr and as the JSON for MUTEX_ERROR: WORD STATUS MESSAGE. Returns the status.
_mutex_fail() {
	jq -nc --arg error "$1" --arg message "$3" --argjson holder "${v_facts:-null}" --argjson delayed "$v_delayed" \
		--arg reason "$v_reason" '{ $error, $message, $holder, $delayed, $reason }'
	printf 'mutex.sh: %s\n' "$3" >&2
	return "$2"
}

_mutex_runs() { # PID: it runs and is not a zombie
	kill -0 "$1" 2>/dev/null || return 1
	[ ! -r "/proc/$1/stat" ] || ! read -r stat <"/proc/$1/stat" || case ${stat##*)} in ' Z'*) return 1 ;; esac
}

_mutex_option() { # NAME VALUE; words: how many arguments it used
	words=2
	case $1 in
	--quiet) words=1 quiet=yes ;;
	--wait) if [ "$2" = forever ]; then wait_=''; else _mutex_duration "$2" && wait_=$cs; fi ;;
	--expect) _mutex_duration "$2" && alert=$cs ;;
	--auto-unlock-after) _mutex_duration "$2" && unlock=$cs ;;
	--grace) _mutex_duration "$2" && grace=$cs ;;
	--once-per) _mutex_duration "$2" && [ "$cs" -ge 100 ] && per=$((cs / 100)) ;;
	--period-offset) _mutex_duration "$2" && offset=$((cs / 100)) ;;
	--owner) owner=$2 ;;
	--purpose) purpose=$2 ;;
	--attr) attributes=$(jq -nc --argjson all "$attributes" --arg attr "$2" \
		'$attr | index("=") as $at | $all + { (.[:$at]): .[$at + 1:] }') ;;
	*) false ;;
	esac
}

# Parses lock or run, NAME [OPTION...] [-- COMMAND...]. taken: how many words precede COMMAND, without the first.
_mutex_options() {
	wait_='' alert='' unlock='' grace=500 purpose='' attributes='{}' per='' offset=0 quiet=''
	owner=${MUTEXCTL_OWNER:-${0##*/}}
	what=$1 name=${2-} taken=$# uuid='' token=''
	shift $(($# < 2 ? $# : 2))
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		_mutex_option "$1" "${2-}" 2>/dev/null && [ $# -ge $words ] ||
			_mutex_fail refused 2 "unknown option or bad value: $1 ${2-}" || return
		shift $words
	done
	taken=$((taken - $#))
	if [ "$what" = run ]; then
		[ $# -gt 1 ] || _mutex_fail refused 2 "mutex_run: there is no command" || return
		command -v "$2" >/dev/null || _mutex_fail refused "$([ -e "$2" ] && echo 126 || echo 127)" "$2 cannot be started" ||
			return
		: "${alert:=30000}" "${unlock:=60000}"
		margin=$((grace + 100))
	else
		[ -n "$alert$unlock" ] || alert=30000
		: "${alert:=$((unlock / 3))}" "${unlock:=$((alert * 3))}"
		margin=$((unlock > 30000 ? 3000 : unlock / 10))
		[ "$alert" -le "$unlock" ] || _mutex_fail refused 2 "the alert would come after the auto-unlock" || return
	fi
	[ "$alert" -gt 0 ] && [ "$unlock" -ge $((margin * 2)) ] && [ "$unlock" -ge 100 ] ||
		_mutex_fail refused 2 "the auto-unlock is too soon"
}

# Prints the time by the wall clock, and the body that takes the lock at that time.
_mutex_record() {
	_mutex_eval '(now * 1000 | floor) as $at | .fields = fields($at; $alert * 10; $unlock * 10; { $owner, $hostname,
		pid: ($pid | tonumber), $purpose, $backtrace, client: "shell/0.2.0", $boot_id, pid_namespace:
		($namespace | tonumber? // null) }; $attributes) | if $purpose | index("\ufffd") then refuse("the purpose is not
		valid UTF-8") else "\($at) \(body("acquire") | tojson)" end' --argjson alert "$alert" --argjson unlock "$unlock" \
		--arg owner "$owner" --arg hostname "$(uname -n)" --arg pid "$self" --arg purpose "$purpose" --arg backtrace "$0" \
		--arg boot_id "$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)" --argjson attributes "$attributes" \
		--arg namespace "$(readlink /proc/self/ns/pid 2>/dev/null | tr -dc 0-9)" </dev/null
}

# Takes the lock. 0: held. 1: etcd did not answer or refused. 3: another process holds it.
_mutex_acquire() {
	refused='' doubt=false till=$((began + ${wait_:-99999999999}))
	[ "$wait_" != 0 ] || till=$((began + timeout))
	trap 'trap "" HUP INT TERM; _mutex_cancel 100; exit 143' HUP INT TERM
	while :; do
		uuid=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n' |
			sed 's/^\(.\{8\}\)\(.\{4\}\).\(...\).\(...\)\(.\{12\}\)$/\1-\2-4\3-8\4-\5/')
		_mutex_now
		since=$now
		body=$(_mutex_record 2>&1) || _mutex_fail refused 2 "$body" || return
		at=${body%% *}
		_mutex_send acquire $((till < since + unlock / 3 ? till : since + unlock / 3)) "${body#* }"
		outcome=$? doubt=$unanswered verdict=$v_verdict message=$v_message left_over=''
		_mutex_runs "$self" || { _mutex_cancel 500; exit 1; }
		case $outcome,$verdict in
		0,held*) token=$v_token deadline=$((since + unlock - margin)) && return ;;
		0,*) refused=$(_mutex_describe) ;;
		esac
		_mutex_now
		[ "$doubt" = false ] || _mutex_cancel $((till < now + 10 ? 10 : till < now + timeout ? till - now : timeout)) ||
			left_over="; the request may still take the lock, as $uuid, until its auto-unlock"
		[ $outcome != 2 ] || _mutex_fail refused 1 "etcd refuses: $message$left_over" || return
		_mutex_now
		if [ "$wait_" = 0 ] || [ "$now" -ge $till ]; then
			[ -n "$refused" ] || _mutex_fail unavailable 1 "etcd did not answer: $message$left_over" || return
			[ "$wait_" = 0 ] || _mutex_fail timeout 3 "$refused$left_over" || return
			_mutex_fail held 3 "$refused$left_over" || return
		fi
		[ $outcome = 0 ] || continue
		[ -n "$quiet" ] || printf 'mutex.sh: waiting: %s\n' "$refused" >&2
		quiet=yes pause=$((50 + 0x${uuid%%-*} % 100)) # there is no queue, so waiters must not retry in step
		sleep "$(_mutex_seconds $((pause < till - now ? pause : till - now)))"
	done
}

_mutex_describe() {
	_mutex_eval '"lock \(.lock | visible | tojson) is held by " + if $facts then $facts | by elif $delayed
		then "nobody, but the lock delay of an ended hold is not over" else "nobody, but others are waiting" end' \
		--argjson facts "${v_facts:-null}" --argjson delayed "$v_delayed" </dev/null
}

# Keeps a request that may be in flight from taking the lock. Fails if that is not settled within HUNDREDTHS.
_mutex_cancel() {
	_mutex_now
	end=$((now + $1))
	if _mutex_send call $end '{"TTL":"3600"}' /v3/lease/grant; then
		lease=$v_id
		_mutex_send cancel $end && [ "$v_verdict" = cancelled ] && return
	fi
	case $v_message in *"space exceeded"*) _mutex_send withdraw $end ;; esac # etcd is out of space for a tombstone
	return 1
}

# Reports that the hold is over, and cancels requests that might take the lock again.
_mutex_is_lost() {
	lost="lock \"$name\" is lost: $v_reason${v_said:-}" status=4
	[ "$v_reason" != deadline ] || status=5
	[ "${v_held:-}" != true ] || status=3
	[ "$doubt" = false ] || _mutex_cancel 200
	_mutex_fail lost $status "$lost"
}

_mutex_release() { # HUNDREDTHS
	_mutex_now
	end=$((now + $1)) late=''
	[ "$now" -lt "$deadline" ] || late=yes
	_mutex_send release $end
	outcome=$? verdict=$v_verdict message=$v_message unsure=$unanswered
	[ "$verdict" != lost ] || _mutex_is_lost || return
	[ "$doubt" = false ] || _mutex_cancel 200 || printf 'mutex.sh: %s may take "%s" again\n' "$uuid" "$name" >&2
	[ $outcome != 2 ] || _mutex_fail refused 1 "etcd refuses: $message" || return
	[ $outcome = 0 ] || _mutex_fail unavailable 1 "etcd did not answer: $message; the lock stays until its auto-unlock" ||
		return
	[ -z "$late" ] || [ "$unsure" = false ] || { v_reason=deadline && _mutex_is_lost; }
}

# Extends the hold: PROGRESS. A heartbeat also passes the alert time and the mod revision of alive that it has read.
_mutex_extend() {
	_mutex_now
	sent=$now seen=${3:-} # the deadlines advance even if the wall clock was set back
	body=$(_mutex_eval '([now * 1000 | floor, $least] | max) as $at | .fields = { auto_unlock_at: ($at + $unlock | time),
		alert_at: ([if .seen == "" then $at else $first end + $alert, $at + $unlock] | min | time),
		alive: ([($at | time), ($progress | cut(1024) | select(. != ""))] | join(" ")) }
		| .fields.alert_at |= ([., $stored] | max) | body("alive")' --arg progress "$1" --arg stored "${2:-}" \
		--argjson first "$at" --argjson least $((at + (sent - since) * 10)) --argjson alert $((alert * 10)) \
		--argjson unlock $((unlock * 10)) </dev/null)
	_mutex_send alive $((now + 1500 < deadline ? now + 1500 : deadline)) "$body" || return
	[ "$v_verdict" != still_held ] || deadline=$((sent + unlock - margin))
}

# Keeps the hold until it is lost, its shell is gone, or COMMAND has ended, and sets v_reason to which it was. Extends
# it every BEAT hundredths unless that is 0: BEAT [COMMAND].
_mutex_keep() {
	look=0 beat=$(($1 == 0 ? deadline + 99999999999 : since + $1)) period=$(($1 > 0 && $1 < 500 ? $1 : 500)) v_reason=''
	while _mutex_now && [ -z "$v_reason" ]; do
		if [ "$now" -ge "$deadline" ]; then
			v_reason=deadline
		elif ! _mutex_runs "$self"; then
			v_reason=orphaned
		elif [ $# = 2 ] && ! _mutex_runs "$2"; then
			v_reason=ended
		elif [ "$now" -lt $look ]; then
			sleep "$(_mutex_seconds $((deadline - now < 100 ? deadline - now : 100)))" &
			nap=$!
			wait $nap
		else
			look=$((now + 100))
			_mutex_send read $((now + 300 < deadline ? now + 300 : deadline)) || continue
			look=$((now + period))
			[ "$v_verdict" != still_held ] || [ "$now" -lt $beat ] ||
				_mutex_extend "$v_progress" "$v_alert_at" "$v_seen" || continue
			[ "$v_verdict" != still_held ] || [ "$now" -lt $beat ] || beat=$((sent + $1))
			[ "$v_verdict" != again ] || look=0
		fi
	done
}

# The keeper of mutex_run: COMMAND NAME. Ends the command if the lock is lost or the shell is gone.
_mutex_guard() {
	trap '' HUP INT QUIT
	nap=''
	trap 'kill $nap 2>/dev/null; exit 0' TERM
	_mutex_setup && _mutex_adopt "$2" && _mutex_load || exit 1
	_mutex_keep $(((unlock - margin) / 3 < 2000 ? (unlock - margin) / 3 : 2000)) "$1"
	trap '' TERM
	[ "$v_reason" != ended ] || exit 0 # a TERM that arrives before its trap is set may get lost
	# It does not wait until somebody reads this, and does not end where nobody does any more.
	printf 'mutex.sh: lock "%s" is lost: %s; ending the command\n' "$name" "$v_reason${v_said:-}" >&2 &
	_mutex_stop "$1"
	[ "$v_reason" != orphaned ] || _mutex_release 1500 >/dev/null
	[ "$doubt" = false ] || [ "$v_reason" = deadline ] || _mutex_cancel 200
	exit 5
}

# Sends TERM to COMMAND and all its descendants, then KILL after the grace.
_mutex_stop() {
	all=$(ps -A -o pid= -o ppid= 2>/dev/null | awk -v top="$1" '{ parent[$1] = $2 } END { for (p in parent) {
		q = p; while (q in parent && q != top) q = parent[q]; if (q == top) print p } }')
	_mutex_now
	end=$((now + grace)) signal=TERM
	for one in ${all:-$1}; do kill -s TERM "$one" 2>/dev/null; done
	while [ "$now" -lt $end ]; do
		left=''
		for one in ${all:-$1}; do ! _mutex_runs "$one" || left=$one; done
		[ -n "$left" ] || return 0
		sleep 0.1
		_mutex_now
	done
	for one in ${all:-$1}; do kill -s KILL "$one" 2>/dev/null; done
}

# Runs lock or run in a subshell: prints the variables of the hold; nothing if the period is used up.
_mutex_take() {
	_mutex_setup && _mutex_options "$@" || return
	begins=$(date +%s)
	begins=$((begins - (begins - offset) % ${per:-1}))
	if [ -n "$per" ]; then
		_mutex_now
		_mutex_send period $((now + timeout)) || _mutex_fail unavailable 1 "etcd did not answer: $v_message" || return
		seen=$v_seen used=${v_mark%% *}
		case ${used%%.*} in '' | *[!0-9]*) used=0 ;; esac
		[ "${used%%.*}" -lt $begins ] || { _mutex_used_up; return; }
	fi
	_mutex_acquire || return
	mark="$begins $uuid $(uname -n)"
	_mutex_now
	if [ -n "$per" ] && ! { _mutex_send mark $((now + timeout)) && [ "$v_verdict" = marked ]; }; then
		_mutex_release 1500 && _mutex_used_up
		return
	fi
	_mutex_now
	[ "$now" -lt "$deadline" ] || { v_reason=deadline && _mutex_release 1500 && _mutex_is_lost; } || return
	for one in taken uuid token at since alert unlock margin grace doubt self deadline; do
		eval "printf '%s ' $one=\$$one"
	done
}

_mutex_used_up() { [ -n "$quiet" ] || printf 'mutex.sh: not run: the period is used up: %s\n' "$v_mark" >&2; }

# ---- The functions for scripts.

# Runs FUNCTION [ARGUMENT...] in a subshell: its output goes to _mutex_out, or to MUTEX_ERROR if it fails.
_mutex_call() {
	MUTEX_ERROR='' _mutex_self=$(exec sh -c 'echo $PPID')
	_mutex_out=$(self=$_mutex_self && "$@") && return
	set -- $?
	MUTEX_ERROR=$_mutex_out
	return "$1"
}

# Sets MUTEX_NAME, MUTEX_UUID, MUTEX_TOKEN and MUTEX_HOLD from _mutex_out.
_mutex_adopt() {
	MUTEX_NAME=$1 MUTEX_HOLD=$_mutex_out
	MUTEX_UUID=${_mutex_out#*uuid=} MUTEX_TOKEN=${_mutex_out#*token=}
	MUTEX_UUID=${MUTEX_UUID%% *} MUTEX_TOKEN=${MUTEX_TOKEN%% *}
	export MUTEX_NAME MUTEX_HOLD MUTEX_UUID MUTEX_TOKEN
}

# mutex_lock NAME [OPTION...] takes a lock for this shell, and sets MUTEX_NAME, MUTEX_UUID and MUTEX_TOKEN.
# 1: etcd did not answer or refused; 2: bad input; 3: another process holds it. MUTEX_ERROR has the details as JSON.
mutex_lock() {
	[ -z "${_mutex_mine:-}" ] || { echo "mutex.sh: this shell already holds \"$MUTEX_NAME\"" >&2; return 2; }
	_mutex_call _mutex_take lock "$@" || return
	_mutex_adopt "$1"
	_mutex_mine=$_mutex_self
	[ "${MUTEX_RELEASE_AT_EXIT:-yes}" = yes ] || return 0
	_mutex_traps || return 0
	for _mutex_sig in EXIT HUP INT TERM; do # unless the script has its own trap
		# shellcheck disable=SC2064 # now, not later
		printf '%s\n' "$_mutex_saved" | grep -Eq " (SIG)?$_mutex_sig\$" || trap "_mutex_at_end $_mutex_sig" $_mutex_sig
	done
}

_mutex_traps() { # _mutex_saved: the traps of this shell. dash prints none in $( )
	_mutex_file=$(mktemp "${TMPDIR:-/tmp}/mutex.XXXXXXXX") || return
	trap >"$_mutex_file"
	_mutex_saved=$(cat "$_mutex_file")
	rm -f "$_mutex_file"
}

_mutex_at_end() {
	_mutex_patience=200
	[ -z "${_mutex_mine:-}" ] || mutex_unlock 2>/dev/null || :
	[ "$1" != EXIT ] || return 0
	trap - "$1"
	kill -s "$1" "$(exec sh -c 'echo $PPID')"
}

# mutex_alive [PROGRESS] reports progress and extends both deadlines. It fails if the lock is lost: 3 if another process
# holds it, 4 if it is free, 5 if etcd was unreachable for too long. 1: etcd did not answer, and the hold is unchanged.
mutex_alive() {
	_mutex_call _mutex_alive "${1-}" || return
	MUTEX_HOLD="${MUTEX_HOLD%deadline=*}deadline=$_mutex_out"
}

_mutex_alive() {
	_mutex_setup && _mutex_load || return
	_mutex_extend "$1"
	outcome=$?
	[ "$v_verdict" != lost ] || _mutex_is_lost || return
	[ $outcome != 2 ] || _mutex_fail refused 1 "etcd refuses: $v_message" || return
	[ $outcome = 0 ] || [ "$now" -lt "$deadline" ] || { v_reason=deadline && _mutex_is_lost; } || return
	[ $outcome = 0 ] || _mutex_fail unavailable 1 "etcd did not answer: $v_message" || return
	printf '%s' "$deadline"
}

_mutex_load() {
	[ -n "${MUTEX_HOLD:-}" ] || { echo "mutex.sh: no lock is held" >&2; return 4; }
	name=$MUTEX_NAME
	eval "$MUTEX_HOLD"
}

# mutex_unlock releases the lock. Like mutex_alive, it fails if the lock was already lost.
mutex_unlock() {
	[ -n "${_mutex_mine:-}" ] || { echo "mutex.sh: this shell holds no lock" >&2; return 4; }
	if _mutex_call _mutex_unlock; then set -- 0; else set -- $?; fi
	unset _mutex_mine MUTEX_NAME MUTEX_UUID MUTEX_TOKEN MUTEX_HOLD
	return "$1"
}

_mutex_unlock() { # [NAME]: of mutex_run
	[ $# = 0 ] || _mutex_adopt "$1"
	_mutex_setup && _mutex_load && _mutex_release "${_mutex_patience:-1500}"
}

# mutex_run NAME [OPTION...] -- COMMAND [ARGUMENT...] takes the lock, runs the command, and releases the lock. Meanwhile
# it extends the lock, and ends the command if the lock is lost. Returns the command's status; 1, 2, 3 like mutex_lock;
# 5 if the lock was lost. HUP, INT, QUIT and TERM end the command, then act as they would without mutex_run.
mutex_run() {
	_mutex_call _mutex_take run "$@" || return
	[ -n "$_mutex_out" ] || return 0 # the period is used up
	_mutex_traps || _mutex_saved=''
	_mutex_got='' _mutex_command='' _mutex_name=$1 _mutex_words=${_mutex_out#*taken=}
	shift "${_mutex_words%% *}"
	for _mutex_sig in HUP INT QUIT TERM; do # background commands of a shell ignore INT and QUIT
		# shellcheck disable=SC2064 # now, not later
		trap "_mutex_got=$_mutex_sig; kill -s TERM \${_mutex_command:-} 2>/dev/null || :" $_mutex_sig
	done
	{ (_mutex_adopt "$_mutex_name" && MUTEX_HOLD="$MUTEX_HOLD deadline=99999999999" && exec "$@") <&3 3<&- & } 3<&0
	_mutex_command=$!
	_mutex_guard $_mutex_command "$_mutex_name" </dev/null 3<&- &
	_mutex_keeper=$!
	[ -z "$_mutex_got" ] || kill -s TERM $_mutex_command 2>/dev/null || :
	while :; do
		_mutex_before=$_mutex_got
		if wait $_mutex_command; then set -- 0; else set -- $?; fi
		# A signal interrupts the wait, not the command.
		if [ "$_mutex_got" = "$_mutex_before" ] || ! kill -0 $_mutex_command 2>/dev/null; then break; fi
	done
	kill $_mutex_keeper 2>/dev/null || :
	wait $_mutex_keeper || [ $? != 5 ] || set -- 5
	_mutex_call _mutex_unlock "$_mutex_name" || case $? in 3 | 4 | 5) set -- 5 ;; esac
	trap - HUP INT QUIT TERM
	eval "$_mutex_saved"
	[ -z "$_mutex_got" ] || kill -s "$_mutex_got" "$_mutex_self"
	return "$1"
}
