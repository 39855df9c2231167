# mutex.sh takes locks in etcd, for POSIX sh with curl and jq. Source it:
#
#	. ./mutex.sh
#	mutex_run nightly/report --purpose 'monthly report' -- ./report.sh
#
# README.md says what there is. The protocol: https://github.com/clustermutex/unlocker, docs/protocol.md.
#
# Nothing but names that begin with mutex, MUTEX or _mutex is left in your shell: everything else happens in subshells.
# A hold is a directory, MUTEX_HOLD, which the processes that care for it share. Times within this file are hundredths of
# a second of a clock that nobody sets.
# shellcheck shell=sh

# ---- Record and transactions: pure functions in jq. Inputs become the body of a request, an answer becomes a verdict.

_mutex_program='
def refuse($why): "\($why)\n" | halt_error(2);

# -- Names, times and texts.

def escape: split("%") | join("%25") | split("/") | join("%2F") | if startswith(".") then "%2E" + .[1:] else . end;
def segment:
  if . == "" then refuse("the lock name is empty")
  elif utf8bytelength > 256 then refuse("the lock name has \(utf8bytelength) bytes, at most 256 are allowed")
  elif explode | any(. < 32 or (. > 126 and . < 160)) then refuse("the lock name contains a control character")
  else escape end;
def unsegment:
  . as $segment | split("%2F") | join("/") | split("%2E") | join(".") | split("%25") | join("%")
  | if $segment == "" or escape != $segment then refuse("\($segment|tojson) is no segment of a lock") else . end;
def is_time: type == "string" and test("\\A[0-9]{10}(\\.[0-9]{1,9})?\\z");
# Milliseconds since 1970 as a time.
def time: (. / 1000 | floor | tostring) + (. % 1000 | if . == 0 then "" else "." + (1000 + . | tostring | .[1:] | sub("0+\\z"; "")) end);
def cut($max): if utf8bytelength <= $max then . else .[:$max] | until(utf8bytelength <= $max; .[:-1]) end;
def text($max): if type | . == "string" or . == "number" or . == "boolean" then tostring | cut($max) else null end;
def plain: cut(120) | gsub("[\\p{C}\\p{Zl}\\p{Zp}]"; "\ufffd");
def amount:
  . as $s | ([[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]] | map(select($s >= 2 * .[0] or .[0] == 1))[0]) as [$size, $unit]
  | ($s / $size | round) as $n | "\($n) \($unit)\(if $n == 1 then "" else "s" end)";
def moment($now): tonumber | if . > $now then "in " + (. - $now | amount) else ($now - . | amount) + " ago" end;
def unb64: if . == null or . == "" then "" else @base64d end;

# Whole numbers as decimal text, which may have more digits than a float keeps.
def less($than): length < ($than | length) or length == ($than | length) and . < $than;
def minus_one:
  if length < 16 then tonumber - 1 | tostring
  elif .[-9:] == "000000000" then (.[:-9] | minus_one) + "999999999"
  else .[:-9] + (.[-9:] | tonumber + 999999999 | tostring | .[1:]) end;

# -- The record that is written. The state: name, uuid, settings; at: milliseconds.

def own_keys: ["uuid", "alert_at", "auto_unlock_at", "alive", "asked", "extended", "acknowledged", "metadata"];
def members: ["owner", "hostname", "pid", "locked_at", "purpose", "backtrace", "client", "boot_id", "process_start",
  "pid_namespace", "pod_namespace", "pod_name", "pod_uid", "container", "detached", "lock_delay"];
def check_text($what): if utf8bytelength > 1024 then refuse("\($what) has \(utf8bytelength) bytes, at most 1024 are allowed") else . end;
def check_attributes:
  if type != "object" then refuse("the attributes are no JSON object")
  elif length > 64 then refuse("\(length) attributes, at most 64 are allowed") else . end
  | to_entries | map(.key as $key
    | if $key | test("\\A[a-z][a-z0-9_]{0,62}\\z") | not then
        refuse("attribute \($key|tojson): want a lower-case letter, then at most 62 of a-z, 0-9 and _")
      elif own_keys + members | index($key) then refuse("attribute \($key): that name belongs to the protocol")
      elif .value | type | . == "string" or . == "number" or . == "boolean" | not then
        refuse("attribute \($key): want text, a number or a boolean")
      elif .value | type == "string" then .value |= check_text("attribute \($key)") else . end)
  | from_entries;
# The pod and its container, by the environment. Without the name or uid of a pod, the rest belongs to something else.
def pod:
  { pod_namespace: env.POD_NAMESPACE, pod_name: env.POD_NAME, pod_uid: env.POD_UID, container: env.CONTAINER_NAME }
  | with_entries(select(.value | strings | test("\\A[A-Za-z0-9._-]{1,253}\\z")))
  | if .pod_name or .pod_uid then . else {} end;
# Whole lines of the newest frames: as many as a backtrace, and the record, have room for.
def backtrace($room): ([$room, 16384] | min) as $max | gsub("\n+\\z"; "") | if utf8bytelength <= $max then .
  elif $max < 1024 then "" else (cut($max - 9) | split("\n")[:-1] | join("\n")) + "\n... cut\n" end;
def fields($uuid; $at; $settings):
  { uuid: $uuid, alert_at: ($at + $settings.alert_ms | time), auto_unlock_at: ($at + $settings.unlock_ms | time),
    metadata: ($settings.members + { locked_at: ($at | time) } + $settings.attributes | tojson) }
  | (to_entries | map((.key | length) + (.value | utf8bytelength)) | add) as $size
  | if $size > 65536 then refuse("the record has \($size) bytes, at most 65536 are allowed") else . end;

# -- The record that is read: field -> text.

# The halves of surrogate pairs, alone, are replaced; numbers that JSON does not have spoil the document.
def document:
  if test("\\\\u[dD][89a-fA-F]") then
    gsub("\\\\(?<e>u[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)";
      if .e | test("\\Au[dD]...\\z") then "\\ufffd" else "\\" + .e end) else . end
  | (try fromjson catch null) | if type == "object" and ([.. | numbers | isnan] | any | not) then . else {} end;
def facts:
  . as $fields | (.metadata // "" | document | with_entries(select(.key as $key | own_keys | index($key) | not)))
  + ($fields | del(.metadata)) | . as $all
  | { uuid: (.uuid | text(1024)), owner: (.owner | text(1024)), hostname: (.hostname | text(1024)),
      purpose: (.purpose | text(1024)), pid: (.pid | text(20)) }
  + (["alert_at", "auto_unlock_at", "locked_at"] | map({ key: ., value: ($all[.] | text(64) | select(is_time)) }) | from_entries)
  | with_entries(select(.value != null));
def malformed: [.uuid, .alert_at, .auto_unlock_at] | any(. == null);
def describe($now):
  (if (.owner // "") == "" then "an unknown owner" else .owner | plain end)
  + (if .hostname then " on \(.hostname | plain)" else "" end) + (if .pid then " (pid \(.pid | plain))" else "" end)
  + (if .locked_at then ", taken \(.locked_at | moment($now))" else "" end)
  + (if .purpose then " for \"\(.purpose | plain)\"" else "" end)
  + (if .auto_unlock_at then "; unless extended, it is auto-unlocked \(.auto_unlock_at | moment($now))" else "" end);
def others: if . == 0 then "" elif . == 1 then "; one is waiting" else "; \(.) are waiting" end;
# A lock delay, in words, as far as it can be read.
def describe_delay($now):
  ((.at | text(64) | select(is_time) | tonumber) // null) as $at
  | "a lock delay" + if .owner | type == "string" then " after the hold of \(.owner | plain)" else "" end
  + if (.hostname | type == "string") and .owner then " on \(.hostname | plain)" else "" end
  + if $at and (.seconds | type == "number") then ", which ends \($at + .seconds | moment($now))" else "" end;
def refusal($lock; $holder; $waiting; $delay; $now):
  "lock \($lock | plain | tojson) " + if $holder then "is held by \($holder | describe($now))"
  elif $delay then "is held by nobody, but there is \($delay | describe_delay($now))"
  else "is held by nobody" end + ($waiting | others);

# -- Keys and parts of transactions. The state: {lock, uuid, …}.

def rec: $prefix + (.lock | segment) + "/";
def queue: $prefix + ".queue/" + (.lock | segment) + "/";
def ticket: queue + .uuid;
def tail: queue + ".tail";
def tombstone: $prefix + ".cancelled/" + .uuid;
def history: $prefix + ".history/" + .uuid;
def delay: $prefix + ".delays/" + (.lock | segment);
def period: $prefix + ".periods/" + (.lock | segment);

def created($key; $revision): { key: ($key | @base64), target: "CREATE", result: "EQUAL", create_revision: $revision };
def absent($key): created($key; "0");
def unchanged($key; $revision): { key: ($key | @base64), target: "MOD", result: "EQUAL", mod_revision: $revision };
def equals($key; $value): { key: ($key | @base64), target: "VALUE", result: "EQUAL", value: ($value | @base64) };
def put($key; $value): { request_put: ({ key: ($key | @base64) } + if $value == "" then {} else { value: ($value | @base64) } end) };
def put($key; $value; $lease): put($key; $value) | .request_put.lease = $lease;
def get($key): { request_range: { key: ($key | @base64) } };
def remove($key): { request_delete_range: { key: ($key | @base64) } };
def below($prefix): { key: ($prefix | @base64), range_end: ($prefix[:-1] + "0" | @base64) };
def tickets($limit):
  { request_range: { key: (queue + "/" | @base64), range_end: (queue[:-1] + "0" | @base64), limit: $limit,
                     sort_order: "DESCEND", sort_target: "CREATE" } };
def puts($names): rec as $rec | [.fields | to_entries[] | select(.key as $key | $names == null or ($names | index($key)))
  | put($rec + .key; .value)];
def mine: [equals(rec + "uuid"; .uuid), created(rec + "uuid"; .token)];
def why: [{ request_range: below(rec) }, get(history)];
def leaving: [remove(ticket), { request_txn: { compare: [equals(tail; .uuid)], success: [remove(tail)] } }];
def queued: if .queued then leaving else [] end;
def bury: put(tombstone; .lock; .lease);
def nonempty: with_entries(select(.value | length > 0));

# -- Bodies.

def body($step):
  if $step == "acquire" then
    { compare: [absent(rec + "uuid"), absent(tail), absent(tombstone), absent(delay)], success: puts(null),
      failure: [{ request_range: below(rec) }, get(delay)] }
  elif $step == "try" then body("acquire") + { compare: (body("acquire").compare + [absent(ticket)]) }
  elif $step == "alive" then
    { compare: (mine + if (.seen // "") == "" then [] else [unchanged(rec + "alive"; .seen)] end),
      success: ([{ request_txn: {
          compare: [{ key: (rec + "auto_unlock_at" | @base64), target: "VALUE", result: "LESS", value: (.fields.auto_unlock_at | @base64) }],
          success: puts(["alert_at", "auto_unlock_at"]) } }] + puts(["alive"])),
      failure: why }
  elif $step == "release" then
    { compare: mine, success: ([{ request_delete_range: below(rec) }] + queued), failure: (why + queued) }
  elif $step == "release_in_doubt" then
    { compare: mine, success: ([bury, { request_delete_range: below(rec) }] + leaving), failure: ([bury] + why + leaving) }
  elif $step == "cancel" then
    { compare: [equals(rec + "uuid"; .uuid)], success: ([bury, { request_delete_range: below(rec) }] + queued), failure: ([bury] + queued) }
  elif $step == "withdraw" then
    { compare: [equals(rec + "uuid"; .uuid)], success: ([{ request_delete_range: below(rec) }] + queued), failure: queued } | nonempty
  elif $step == "join" then
    { compare: [absent(ticket), absent(tombstone)],
      success: [put(ticket; .ticket; .lease), put(tail; .uuid; .lease)], failure: [get(ticket)] }
  elif $step == "look" then
    { success: [get(ticket), get(rec + "uuid"), get(tail),
        (.position as $p | tickets("1") | .request_range.max_create_revision = ($p | minus_one)), tickets("1"), get(delay)] }
  elif $step == "turn" then
    { compare: [absent(rec + "uuid"), absent(tombstone), created(ticket; .position), absent(delay)],
      success: (puts(null) + leaving), failure: [{ request_range: below(rec) }, get(ticket), get(delay)] }
  elif $step == "leave" then { compare: [equals(tail; .uuid)], success: [tickets("2")], failure: [remove(ticket)] }
  elif $step == "leave_as_tail" then
    { compare: ([equals(tail; .uuid)] + if .older then [created(queue + .older.ticket; .older.create_revision)] else [] end),
      success: [remove(ticket), if .older then put(tail; .older.ticket; .older.lease) else remove(tail) end] }
  elif $step == "restore_tail" then
    { compare: [absent(tail), created(queue + .older.ticket; .older.create_revision)],
      success: [put(tail; .older.ticket; .older.lease)] }
  elif $step == "read" then { success: why }
  elif $step == "standing" then
    { success: [{ request_range: below(rec) },
        { request_range: ({ key: (queue + "/" | @base64), range_end: (queue[:-1] + "0" | @base64), keys_only: true }) },
        get(delay)] }
  elif $step == "period" then { success: [get(period)] }
  elif $step == "mark" then
    { compare: (mine + [unchanged(period; .seen)]),
      success: [put(period; .mark)], failure: [get(period)] }
  else error("no step \($step)") end;

# -- Verdicts. The state is the input of the body; $a is the answer: {status, body}, {status, text} or {none, unsent}.

def kvs($a; $n): $a.body.responses[$n].response_range.kvs // [];
# What is read of the record: uuid (base64), token, fields. Without foreign keys and what an earlier hold left behind.
def held($a; $n):
  rec as $rec
  | [kvs($a; $n)[] | .name = (.key | unb64) | select(.name | startswith($rec)) | .name |= .[($rec | length):]
     | select(.name | test("\\A[a-z][a-z0-9_]{0,62}\\z"))] as $all
  | ([$all[] | select(.name == "uuid")][0]) as $uuid
  | ($uuid.create_revision // "0") as $token
  | { uuid: $uuid.value, token: $token, is: ($uuid != null),
      keys: [$all[] | select((.mod_revision // "0") | less($token) | not)] }
  | .fields = (.keys | map({ key: .name, value: (.value | unb64) }) | from_entries);
def earlier($a; $n):
  held($a; $n) as $held | if $held.uuid == (.uuid | @base64) then { verdict: "held_by_earlier_send", token: $held.token } else null end;
def named: { ticket: (.key | unb64 | split("/")[-1]), create_revision, lease };
def loss($a; $n):
  held($a; $n) as $held | (.token | tonumber) as $token | (kvs($a; $n + 1)[0].value | unb64 | document) as $ending
  | { verdict: "lost", held: $held.is }
  + if ($ending.ended | type) == "string" and ($ending.token | try tonumber catch 0) == $token then { reason: $ending.ended, ended: true }
    elif $held.is then { reason: "replaced" } else { reason: "deleted" } end;

# What an answer says that is no result: [verdict, doubt, message]; null for a result.
def failure($a):
  ($a.body | if type == "object" then . else {} end | if .error | type == "object" then .error else . end) as $b
  | ($b.message // $a.text // $a.error // "" | tostring) as $m
  | if $a.status == 200 and ($b | has("header") or has("result")) then null
    elif $b.code == 16 or $b.code == 3 and ($m | test("\\Aetcdserver: (user name is empty|revision of auth store is old)")) then ["login", false, $m]
    elif $a.status == 404 and $b.code == 5 and ($m | test("lease")) then ["lease", false, $m]
    elif $a.status == 404 or ($b.code | . == 3 or . == 7 or . == 9) then ["report", false, $m]
    elif $b.code == 8 and ($m | test("too many requests")) then ["resend", false, $m]
    elif $b.code == 8 and ($m | test("space exceeded")) then ["full", true, $m]
    else ["resend", ($a.unsent | not), $m] end;

def result($step; $a):
  if $step == "acquire" or $step == "try" then
    if $a.body.succeeded then { verdict: "held", token: $a.body.header.revision }
    else earlier($a; 0) // (held($a; 0) | { verdict: "refused", holder: (if .is then .uuid | unb64 else null end),
      delayed: (kvs($a; 1) | length > 0), facts: (if .is then .fields | facts else null end) }) end
  elif $step == "alive" then
    held($a; 0) as $held
    | if $a.body.succeeded then { verdict: "still_held", reported: $a.body.header.revision }
      elif $held.uuid == (.uuid | @base64) and $held.token == .token then { verdict: "again",
        reported: ([$held.keys[] | select(.name == "alive") | .mod_revision][0] // "0"),
        progress: ($held.fields.alive // "" | split(" ")[1:] | join(" ")),
        alert_at: ($held.fields.alert_at // "" | select(is_time) // "0" | tonumber * 1000 | floor) }
      else loss($a; 0) end
  elif $step == "release" or $step == "release_in_doubt" then
    if $a.body.succeeded then { verdict: "released" }
    else (if $step == "release" then 0 else 1 end) as $n | loss($a; $n) as $loss
      | if $loss.ended or (.unanswered | not) or earlier($a; $n) then $loss else { verdict: "released" } end end
  elif $step == "cancel" then { verdict: "cancelled" }
  elif $step == "withdraw" or $step == "restore_tail" then { verdict: "again" }
  elif $step == "join" then
    if $a.body.succeeded then { verdict: "joined", position: $a.body.header.revision }
    else (kvs($a; 0)[0] | if . then { verdict: "joined_by_earlier_send", position: .create_revision } else { verdict: "lost" } end) end
  elif $step == "look" then
    . as $in | [range(6) as $n | kvs($a; $n)[0]] as [$own, $uuid, $tail, $older, $newest, $delay]
    | if $uuid and $uuid.value == (.uuid | @base64) then { verdict: "held_by_earlier_send", token: $uuid.create_revision }
      elif $own.create_revision != .position then { verdict: "lost" }
      elif $older or $uuid or $delay then { verdict: "wait", watch: ($older // $uuid // $delay | .key | unb64) }
        + if $tail then {} else { restore: ($newest | named) } end
      else { verdict: "turn" } end
  elif $step == "turn" then
    if $a.body.succeeded then { verdict: "held", token: $a.body.header.revision }
    else earlier($a; 0) // if kvs($a; 1)[0].create_revision == .position then { verdict: "again" } else { verdict: "lost" } end end
  elif $step == "leave" then
    if $a.body.succeeded then (ticket | @base64) as $own
      | { verdict: "as_tail", older: ([kvs($a; 0)[] | select(.key != $own)][0] | if . then named else null end) }
    else { verdict: "left" } end
  elif $step == "leave_as_tail" then { verdict: (if $a.body.succeeded then "left" else "again" end) }
  elif $step == "read" then
    held($a; 0) as $held | if $held.uuid == (.uuid | @base64) and $held.token == .token then
      { verdict: "still_held", unlock_at: $held.fields.auto_unlock_at } + (. as $in
        | [$held.keys[] | select(.name == "asked" or .name == "extended") | .name as $name | .mod_revision as $revision
           | .value | unb64 | select(utf8bytelength <= 2048) | document
           | select(.uuid == $in.uuid and (try (.token | tonumber) catch 0) == ($in.token | tonumber))
           | { key: $name, value: { revision: $revision, by, reason, seconds } }] | from_entries)
    else loss($a; 0) end
  elif $step == "standing" then
    # Some keep their ticket while they hold the lock.
    held($a; 0) as $held | [ticket, queue + ($held.uuid | unb64) | @base64] as $not
    | { verdict: "read", holder: (if $held.is then $held.fields | facts else null end),
      waiting: ([kvs($a; 1)[] | select(.key as $key | $not | index($key) | not)] | length),
      delay: (kvs($a; 2)[0] | if . then .value | unb64 | document else null end) }
  elif $step == "period" then kvs($a; 0)[0] | { verdict: "read", seen: (.mod_revision // "0"), mark: (.value | unb64) }
  elif $step == "mark" then
    if $a.body.succeeded or ((kvs($a; 0)[0].value | unb64) == .mark) then { verdict: "marked" } else { verdict: "again" } end
  else { verdict: "done", id: $a.body.ID, ttl: $a.body.result.TTL, login: $a.body.token } end;

def verdict($step; $a):
  failure($a) as $failure
  | if $failure == null then result($step; $a)
    else $failure as [$word, $doubt, $message]
      | { doubt: $doubt, message: $message, verdict: (
          if $word == "full" then { cancel: "withdraw", release_in_doubt: "withdraw", leave_as_tail: "withdraw", restore_tail: "again" }[$step] // "resend"
          elif $word == "lease" then { leave_as_tail: "again", restore_tail: "again" }[$step] // "lease"
          else $word end) } end;

# -- For the shell: an answer as curl printed it; members as assignments.

def answer:
  if . == "none" then { none: true } elif . == "unsent" then { none: true, unsent: true }
  else split("\n") | (.[-1] | tonumber) as $status | (.[:-1] | join("\n")) as $text
    | { status: $status } + try { body: ($text | fromjson) } catch { text: $text } end;
# Watches for the deletion of keys.
def deletions: map({ create_request: { key: @base64, filters: ["NOPUT"] } } | tojson) | add;
def assignments: to_entries | map("v_\(.key)=\(.value | if . == null then "" elif type == "string" then . else tojson end | @sh)") | join(" ");
'

# ---- Gateway: curl, with several endpoints, TLS, login, and a time limit for every request.

# In each subshell first: options and settings of its own. The variables are those of mutexctl and etcdctl.
_mutex_setup() {
	set +aeCu
	set -f
	IFS=' 	
'
	prefix=${MUTEXCTL_LOCKS_PREFIX:-/mutexes/}
	prefix=${prefix%/}/
	endpoints=${MUTEXCTL_ETCD_ENDPOINTS:-${ETCDCTL_ENDPOINTS:-127.0.0.1:2379}}
	ca=${MUTEXCTL_ETCD_CACERT:-${ETCDCTL_CACERT:-}}
	cert=${MUTEXCTL_ETCD_CERT:-${ETCDCTL_CERT:-}}
	key=${MUTEXCTL_ETCD_KEY:-${ETCDCTL_KEY:-}}
	user=${MUTEXCTL_ETCD_USER:-${ETCDCTL_USER:-}}
	password=${MUTEXCTL_ETCD_PASSWORD:-${ETCDCTL_PASSWORD:-}}
	case $user in *:*) password=${user#*:} user=${user%%:*} ;; esac
	if [ -n "${MUTEXCTL_ETCD_PASSWORD_FILE:-}" ]; then password=$(cat "$MUTEXCTL_ETCD_PASSWORD_FILE"); fi
	_mutex_duration "${MUTEXCTL_ETCD_REQUEST_TIMEOUT:-2}" && timeout=$cs || timeout=200
	name='' uuid='' token='' position='' lease='' seen='' mark='' fields='' older='' at=0
	queued=false unanswered=false doubt=false watcher='' quiet=''
}

# now: hundredths of a second, by the clock that goes on while the machine sleeps. Without /proc, the wall clock.
_mutex_now() {
	if [ -r /proc/uptime ]; then
		read -r now _ </proc/uptime
		now=${now%.*}${now#*.}
		_mutex_unpad "$now"
		now=$unpadded
	else
		now=$(date +%s)00
	fi
}

# A number that begins with 0 would be octal.
_mutex_unpad() {
	unpadded=$1
	while :; do
		case $unpadded in 0?*) unpadded=${unpadded#0} ;; *) return ;; esac
	done
}

# cs: a duration like 90, 0.5, 10m, 24h. Fails for anything else.
_mutex_duration() {
	case $1 in *m) factor=60 ;; *h) factor=3600 ;; *d) factor=86400 ;; *) factor=1 ;; esac
	number=${1%[smhd]}
	case $number in '' | .* | *[!0-9.]* | *.*.* | ??????????????*) return 2 ;; esac
	fraction=00
	case $number in *.*) fraction=${number#*.}00 ;; esac
	_mutex_unpad "${number%%.*}"
	[ ${#unpadded} -le 9 ] || return 2
	cs=$(((unpadded * 100 + 1${fraction%"${fraction#??}"} - 100) * factor))
}

_mutex_seconds() { seconds=$(($1 / 100)).$((($1 % 100) / 10))$(($1 % 10)); }

_mutex_sleep() {
	_mutex_seconds "$1"
	sleep "$seconds" 2>/dev/null || sleep 1
}

# Runs jq with the state as its input, and what stdin says as $raw: PROGRAM [OPTION...]. It takes long to start, so do
# as much as possible in one run.
_mutex_eval() {
	program_=$1
	shift
	jq -Rsrc "$@" --arg prefix "$prefix" --arg lock "$name" --arg uuid "$uuid" --arg token "$token" --arg lease "$lease" \
		--arg position "$position" --arg seen "$seen" --arg mark "$mark" \
		--argjson fields "${fields:-null}" --argjson older "${older:-null}" --argjson queued "$queued" \
		--argjson unanswered "$unanswered" --argjson settings "${settings:-null}" "$_mutex_program"' . as $raw | { lock: $lock, uuid: $uuid, token: $token,
			lease: $lease, position: $position, seen: $seen, mark: $mark, fields: $fields, older: $older,
			queued: $queued, unanswered: $unanswered } | '"$program_"
}

# endpoint: the one that answered last. The processes of a hold share which that is.
_mutex_endpoint() {
	current=0
	[ ! -s "$hold/endpoint" ] || read -r current <"$hold/endpoint"
	usual_=$IFS IFS=', '
	# shellcheck disable=SC2086 # the words are wanted
	set -- $endpoints
	IFS=$usual_
	shift $((current % $#))
	endpoint=${1%/}
	case $endpoint in
	*://*) ;;
	*) if [ -n "$ca$cert" ]; then endpoint=https://$endpoint; else endpoint=http://$endpoint; fi ;;
	esac
}

_mutex_fail_over() {
	current=0
	[ ! -s "$hold/endpoint" ] || read -r current <"$hold/endpoint"
	_mutex_write endpoint $(((current + 1) % 1000000))
}

# Becomes curl, so it has to be called in a subshell. SECONDS PATH [OPTION...]; the body is on stdin.
_mutex_curl() {
	limit_=$1 path_=$2
	shift 2
	[ -z "$ca" ] || set -- --cacert "$ca" "$@"
	[ -z "$cert" ] || set -- --cert "$cert" --key "$key" "$@"
	[ ! -s "$hold/login" ] || set -- -H "@$hold/login" "$@"
	exec curl -q -sS --noproxy '*' --max-time "$limit_" -H 'Content-Type: application/json' -H 'Expect:' \
		-H 'Grpc-Metadata-hasleader: true' --data-binary @- "$@" "$endpoint$path_" 2>"$hold/curl"
}

# answer: what came back for PATH, HUNDREDTHS, BODY: the text and a line with the status; none; or unsent.
_mutex_post() {
	_mutex_endpoint
	_mutex_seconds "$2"
	if answer=$(printf '%s' "$3" | _mutex_curl "$seconds" "$1" -w '\n%{http_code}'); then return; fi
	case $? in 6 | 7) answer=unsent ;; *) answer=none ;; esac
}

# What the usual answer to a STEP means: that etcd did what was asked. Fails for others, without having started jq.
# Some builds of etcd write a space after each comma, others none.
_mutex_succeeded() {
	case $answer in '{"header":{'*'}
200') ;; *) return 1 ;; esac
	header_=${answer#'{"header":{'}
	header_=${header_%%\}*}
	case ${answer#'{"header":{'"$header_"} in '},"succeeded":true'* | '}, "succeeded":true'*) ;; *) return 1 ;; esac
	revision_=${header_#*'"revision":"'}
	revision_=${revision_%%\"*}
	case $revision_ in '' | *[!0-9]*) return 1 ;; esac
	case $1 in
	acquire | try | turn) v_verdict=held v_token=$revision_ ;;
	alive) v_verdict=still_held v_reported=$revision_ ;;
	release | release_in_doubt) v_verdict=released ;;
	*) return 1 ;;
	esac
	v_doubt=false
}

# What any answer to a STEP means.
_mutex_judge() {
	eval "$(printf '%s' "$answer" | _mutex_eval ". as \$in | { doubt: false } + verdict(\"$1\"; \$raw | answer)
		| if .watch then .watches = ([.watch, (\$in | ticket)] | deletions) else . end | assignments")"
}

# Sends the same BODY until an answer settles it: STEP PATH TILL BODY. v_verdict and others are what it means.
# Fails with 1 when the time is up, 2 when etcd refuses, 7 when the lease is gone. doubt: some send may be committed yet.
_mutex_send() {
	unanswered=false logins=0 pause=4
	while :; do
		if [ -n "$user" ] && [ ! -s "$hold/login" ]; then _mutex_login || return 2; fi
		_mutex_now
		left=$(($3 - now))
		[ $left -le $timeout ] || left=$timeout
		[ $left -ge 5 ] || left=5
		_mutex_post "$2" $left "$4"
		v_verdict='' v_doubt=true v_message=''
		_mutex_succeeded "$1" || _mutex_judge "$1"
		[ "$v_doubt" != true ] || unanswered=true doubt=true
		case $v_verdict in
		login)
			logins=$((logins + 1))
			if [ -z "$user" ] || [ $logins -gt 5 ]; then return 2; fi
			rm -f "$hold/login"
			continue
			;;
		report) return 2 ;;
		lease) return 7 ;;
		resend | '') ;;
		*) return 0 ;;
		esac
		[ -n "$v_message" ] || v_message=$(cat "$hold/curl" 2>/dev/null)
		[ "$v_doubt" != true ] && [ "$answer" != unsent ] || _mutex_fail_over
		_mutex_now
		[ "$now" -lt "$3" ] || return 1
		[ $pause -le $(($3 - now)) ] || pause=$(($3 - now))
		_mutex_sleep $pause
		[ $pause -ge 100 ] || pause=$((pause * 2))
	done
}

_mutex_step() { _mutex_send "$1" /v3/kv/txn "$2" "${3:-$(_mutex_body "$1")}"; } # STEP TILL [BODY]

_mutex_body() { _mutex_eval "body(\"$1\")" </dev/null; }

# The password is in no argument and no file. Without an answer what follows fails, and is sent again.
_mutex_login() {
	_mutex_post /v3/auth/authenticate "$timeout" "$(_mutex_user=$user _mutex_password=$password \
		jq -nc '{ name: env._mutex_user, password: env._mutex_password }')"
	v_verdict='' v_login=''
	eval "$(printf '%s' "$answer" | _mutex_eval 'verdict("login"; $raw | answer) | assignments')"
	case $v_verdict in
	done) (umask 077 && printf 'Authorization: %s\n' "$v_login" >"$hold/login") ;;
	report)
		case $v_message in *"not enabled"*) user='' ;; *) return 1 ;; esac
		;;
	*) _mutex_fail_over; _mutex_sleep 20 ;;
	esac
}

# Opens a watch on fd 9 for HUNDREDTHS: the body, and how many watches are in it. Succeeds when all are confirmed.
_mutex_watch() {
	_mutex_endpoint
	_mutex_seconds "$1"
	# Whoever opens one end of a pipe with a name waits for the other, and nobody may come: both are opened here.
	exec 7<>"$hold/watch"
	printf '%s' "$2" | _mutex_curl "$seconds" /v3/watch -N >&7 7>&- &
	watcher=$!
	exec 9<"$hold/watch" 7>&-
	open=$3
	while [ "$open" -gt 0 ] && IFS= read -r line <&9; do
		case $line in *'"canceled"'* | *'"error"'*) break ;; *'"created"'*) open=$((open - 1)) ;; esac
	done
	case ${line:-} in *auth* | *user*) rm -f "$hold/login" ;; esac
	[ "$open" = 0 ]
}

# Waits for an event of the watch, or its end. Succeeds for an event.
_mutex_event() {
	IFS= read -r line <&9 || return 1
	case $line in *'"events"'*) ;; *) return 1 ;; esac
}

_mutex_unwatch() {
	[ -n "$watcher" ] || return 0
	exec 9<&-
	kill "$watcher" 2>/dev/null
	wait "$watcher" 2>/dev/null
	watcher=''
}

# ---- Lock: try, queue, hold, lose, release.

# The directory of a hold. Its files are replaced, never changed, since several processes read them.
_mutex_new() {
	if ! command -v curl >/dev/null || ! command -v jq >/dev/null; then
		echo "mutex.sh: curl and jq are needed" >&2
		return 1
	fi
	(umask 077 && new=$(mktemp -d "${TMPDIR:-/tmp}/mutex.XXXXXXXX") && mkfifo "$new/watch" && printf '%s\n' "$new")
}

_mutex_write() { # FILE TEXT
	printf '%s\n' "$2" >"$hold/$1.new.$((now % 1000))" && mv -f "$hold/$1.new.$((now % 1000))" "$hold/$1"
} 2>/dev/null

_mutex_say() { [ -n "$quiet" ] || printf 'mutex.sh: %s\n' "$1" >&2; }

# Says what went wrong, for people and for MUTEX_ERROR: WORD STATUS MESSAGE. Returns the status.
_mutex_fail() {
	jq -nc --arg error "$1" --arg message "$3" --arg reason "${reason:-}" \
		'{ $error, $message, holder: null, waiting: null, delayed: false, $reason }' >"$hold/error"
	printf 'mutex.sh: %s\n' "$3" >&2
	return "$2"
}

# One option: used is how many words it took.
_mutex_option() {
	used=2
	case $1 in
	--quiet) used=1 quiet=yes ;;
	--heartbeat) used=1 heartbeat=yes ;;
	--wait) if [ "$2" = forever ]; then wait_=''; else _mutex_duration "$2" && wait_=$cs; fi ;;
	--expect) _mutex_duration "$2" && alert=$cs ;;
	--auto-unlock-after) _mutex_duration "$2" && unlock=$cs ;;
	--grace) _mutex_duration "$2" && grace=$cs ;;
	--once-per) _mutex_duration "$2" && [ $cs -ge 100 ] && per=$((cs / 100)) ;;
	--period-offset) _mutex_duration "$2" && offset=$((cs / 100)) ;;
	--owner) owner=$2 ;;
	--purpose) purpose=$2 ;;
	--attr) attributes=$(jq -nc --argjson all "$attributes" --arg attr "$2" \
		'$attr | index("=") as $at | $all + { (.[:$at]): .[$at + 1:] }') ;;
	--attributes) attributes=$2 ;;
	--on-lost) on_lost=$2 ;;
	--on-ask) on_asked=$2 ;;
	*) false ;;
	esac
}

# Reads NAME [OPTION...] [-- COMMAND...] into variables; rest: how many words are left.
_mutex_options() {
	wait_='' alert='' unlock='' grace=500 purpose='' attributes='{}' on_lost='' on_asked='' per='' offset=0
	owner=${MUTEXCTL_OWNER:-${0##*/}}
	name=${1-}
	[ $# -eq 0 ] || shift
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		_mutex_option "$@" 2>/dev/null || _mutex_fail refused 2 "what does $1 ${2-} mean?" || return
		[ $# -ge $used ] || _mutex_fail refused 2 "$1 lacks its value" || return
		shift $used
	done
	rest=$#
	if [ -n "$heartbeat" ]; then
		: "${alert:=30000}" "${unlock:=6000}"
	else
		: "${alert:=$((unlock / 3))}"
		[ "$alert" -gt 0 ] || alert=30000
		: "${unlock:=$((3 * alert))}"
		[ "$alert" -le "$unlock" ] || _mutex_fail refused 2 "the alert would come after the auto-unlock" || return
	fi
	[ "$unlock" -ge 100 ] || _mutex_fail refused 2 "auto-unlock after less than a second" || return
	_mutex_margin
}

# How long before auto-unlock the work must have stopped.
_mutex_margin() {
	margin=$((unlock / 10))
	[ $margin -le 3000 ] || margin=3000
}

# The settings of a record that PID holds; whether the end of that process is the END of the work.
_mutex_settings() {
	process_start='' pid_namespace='' boot_id=''
	if [ -r "/proc/$1/stat" ]; then
		read -r boot_id 2>/dev/null </proc/sys/kernel/random/boot_id
		pid_namespace=$(readlink "/proc/$1/ns/pid" | tr -dc 0-9)
		case $(readlink "/proc/$1/ns/time" 2>/dev/null) in
		'' | 'time:[4026531834]') [ "$2" = no ] || process_start=$(sed 's/.*) //' "/proc/$1/stat" | cut -d ' ' -f 20) ;;
		esac
	fi
	_mutex_trace
	settings=$(jq -nr --arg lock "$name" --arg purpose "$purpose" --arg owner "$owner" --arg hostname "$(uname -n)" \
		--arg prefix "$prefix" --argjson alert "$alert" --argjson unlock "$unlock" --arg pid "$1" --arg start "$process_start" \
		--arg namespace "$pid_namespace" --arg boot "$boot_id" --arg trace "$trace" --argjson attributes "$attributes" \
		"$_mutex_program"'
		($lock | segment) as $segment | def number: if . == "" then null else tonumber end;
		{ alert_ms: ([$alert, $unlock] | min * 10), unlock_ms: ($unlock * 10), attributes: ($attributes | check_attributes),
		  members: ({ owner: ($owner | check_text("the owner")), hostname: $hostname, pid: ($pid | number),
		    purpose: ($purpose | check_text("the purpose")), client: "shell/0.2.0", boot_id: $boot,
		    process_start: ($start | number), pid_namespace: ($namespace | number) } + pod
		    | with_entries(select(.value != null and .value != ""))) } as $bare
		| ($bare | .members.backtrace = ($trace | backtrace(60000 - ($bare | tojson | utf8bytelength)))
		  | del(.members.backtrace | select(. == ""))) as $settings
		| fields("00000000-0000-4000-8000-000000000000"; 1553682600250; $settings) as $fits
		| "settings=\($settings | tojson | @sh) read_=\($lock + "\n" + $purpose | @sh)"' 2>"$hold/refused") ||
		_mutex_fail refused 2 "$(sed 's/^jq: error[^:]*: //' "$hold/refused")" || return
	eval "$settings"
	[ "$read_" = "$name
$purpose" ] || _mutex_fail refused 2 "the name or the purpose is not valid UTF-8"
}

# trace: the call stack of whoever called this file, newest frame first. Where the shell has none, the script, and what
# started it: by name, as arguments may be secret.
_mutex_trace() {
	trace=''
	if [ -n "${BASH_VERSION:-}" ]; then
		depth=0
		# shellcheck disable=SC3044 # in bash
		while [ $depth -lt 40 ] && frame=$(caller $depth); do
			depth=$((depth + 1))
			file=${frame#* * }
			place=${frame%" $file"}
			# shellcheck disable=SC3028 # in bash
			[ "$file" != "${BASH_SOURCE:-}" ] || continue
			_mutex_path "$file"
			trace="$trace$path:${place%% *} in ${place#* }
"
		done
	fi
	[ -z "$trace" ] || return 0
	case ${0##*/} in
	-* | sh | ash | bash | dash | ksh* | mksh | yash | zsh | busybox) ;; # no script
	*) [ ! -f "$0" ] || { _mutex_path "$0" && trace="$path
"; } ;;
	esac
	[ ! -r "/proc/$PPID/comm" ] || ! IFS= read -r path <"/proc/$PPID/comm" || trace="${trace}started by $path"
}

# path: FILE, from the root if it can be told.
_mutex_path() {
	path=$1
	case $1 in /*) ;; *) [ ! -f "$1" ] || path=$PWD/${1#./} ;; esac
}

_mutex_uuid() {
	if [ -r /proc/sys/kernel/random/uuid ]; then
		read -r uuid </proc/sys/kernel/random/uuid
	else
		uuid=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n' |
			sed 's/^\(.\{8\}\)\(.\{4\}\).\(...\).\(...\)\(.\{12\}\)$/\1-\2-4\3-8\4-\5/')
	fi
}

# Takes the lock that the settings describe. 0: held. 1: etcd did not answer or refused. 3: another has it.
_mutex_acquire() {
	_mutex_now
	till=999999999999 patience=$((now + 5 * timeout)) refused=''
	[ -z "$wait_" ] || till=$((now + wait_))
	while :; do
		_mutex_uuid
		token='' position='' lease='' older='' claimed='' first=''
		queued=false doubt=false
		step=try
		[ "$wait_" != 0 ] || step=acquire
		_mutex_claim $step
		outcome=$?
		if [ $outcome = 0 ] && [ "$v_verdict" != refused ]; then return 0; fi
		if [ $outcome = 0 ]; then
			refused=yes refused_by=$v_facts
			if [ "$wait_" = 0 ]; then
				_mutex_give_up
				_mutex_refuse held
				return
			fi
			# A late commit of a try in doubt could pass those ahead of a ticket with its uuid.
			if [ $doubt = false ]; then
				_mutex_queue && return 0
				outcome=$?
			fi
		fi
		_mutex_give_up
		_mutex_now
		_mutex_limit
		if [ $outcome = 2 ]; then
			_mutex_fail refused 1 "etcd refuses: $v_message"
			return
		elif [ "$now" -ge "$limit" ]; then
			if [ -n "$refused" ]; then _mutex_refuse timeout; else _mutex_fail unavailable 1 "etcd did not answer: $v_message"; fi
			return
		elif ! kill -0 $$ 2>/dev/null; then
			return 1
		fi
		_mutex_sleep 10
	done
}

# limit: when the call ends. However short the wait, etcd has some time to say who holds the lock.
_mutex_limit() {
	limit=$till
	if [ -z "$refused" ] && [ "$limit" -lt "$patience" ]; then limit=$patience; fi
}

_mutex_refuse() { # held or timeout
	_mutex_now
	_mutex_step standing $((now + timeout)) || v_holder=$refused_by v_waiting='' v_delay=''
	_mutex_describe "$1" "$v_waiting" >"$hold/refusal"
	{ IFS= read -r v_message && cat >"$hold/error"; } <"$hold/refusal"
	printf 'mutex.sh: %s\n' "$v_message" >&2
	return 3
}

# What the latest look at the lock found, in words; then as MUTEX_ERROR: ERROR, and how many are WAITING.
_mutex_describe() {
	jq -nr --arg error "$1" --arg lock "$name" --argjson holder "${v_holder:-null}" --argjson waiting "${2:-null}" \
		--argjson delay "${v_delay:-null}" --arg prefix "$prefix" "$_mutex_program"'
		refusal($lock; $holder; $waiting // 0; $delay; now) as $message
		| $message, ({ $error, $message, $holder, $waiting, delayed: ($delay != null), reason: "" } | tojson)'
}

# The body of a step that puts a record, with times from now by both clocks: at, in milliseconds since 1970, and sent.
# Besides it watches and reads, which tell the holder what happens to the record, and the body of its release, with @ for
# the token.
_mutex_stamp() { # STEP
	_mutex_now
	sent=$now
	body=$(_mutex_eval "(now * 1000 | floor) as \$at | .fields = fields(\$uuid; \$at; \$settings)
		| ([rec + \"uuid\", rec + \"asked\", rec + \"extended\" | { create_request: { key: @base64 } }]
			| .[0].create_request.filters = [\"NOPUT\"] | map(tojson) | add) as \$watches
		| (.token = \"@\" | body(\"release\")) as \$release
		| \"\\(\$at) \\(\$watches) \\(body(\"read\") | tojson) \\(\$release | tojson) \\(body(\"$1\") | tojson)\"" </dev/null)
	at=${body%% *} body=${body#* }
	watches=${body%% *} body=${body#* }
	reads=${body%% *} body=${body#* }
	release=${body%% *} body=${body#* }
}

# Sends what takes the lock: the request is good for a third of the time that it asks for.
_mutex_claim() {
	_mutex_stamp "$1"
	_mutex_limit
	: "${first:=$sent}"
	claimed=yes
	[ "$limit" -lt $((sent + unlock / 3)) ] || limit=$((sent + unlock / 3))
	_mutex_step "$1" "$limit" "$body" || return
	case $v_verdict in
	held*)
		token=$v_token
		printf '%s\n' "${release%%@*}$token${release#*@}" >"$hold/release"
		_mutex_held "$sent"
		;;
	*) [ $doubt = true ] || claimed='' ;;
	esac
}

# Writes down the hold, whose record was sent at that time. Nobody reads it yet.
_mutex_held() {
	since=$1
	printf '%s\n' "$name" >"$hold/name"
	printf '%s\n' "uuid=$uuid token=$token queued=$queued doubt=$doubt alert=$alert unlock=$unlock margin=$margin" \
		"at=$at since=$since heartbeat=$heartbeat" >"$hold/state"
	printf '%s\n' "$on_lost" >"$hold/on_lost"
	printf '%s\n' "$on_asked" >"$hold/on_asked"
	printf '%s\n' 0 >"$hold/reported"
	printf '%s\n' $((at + alert * 10)) >"$hold/alert_at"
	printf '%s\n' $((at + unlock * 10)) >"$hold/unlock_at"
	printf '%s\n' $(($1 + unlock - margin)) >"$hold/deadline"
	[ -z "$lease" ] || _mutex_later 1000 _mutex_revoke
}

# Waits in the queue. 0: held. 1: begin again. 2: refused.
_mutex_queue() {
	_mutex_now
	_mutex_call /v3/lease/grant '{"TTL":"10"}' "$((now + 5 * timeout))" || return
	lease=$v_id
	_mutex_now
	kept=$now
	join=$(_mutex_eval '(now * 1000 | floor) as $at | .ticket = ($settings.members | { owner, hostname, pid, purpose }
		+ { uuid: $uuid, since: ($at | time), timeout_at: (if $left > 9999999999 then null else $at + $left * 10 | time end) }
		| with_entries(select(.value != null)) | tojson) | body("join")' --argjson left "$((till - now))" </dev/null)
	queued=true
	_mutex_step join "$((now + 1000))" "$join" || return 1
	[ "$v_verdict" != lost ] || return 1
	position=$v_position watching=''
	look=$(_mutex_body look)
	[ -n "$quiet" ] || _mutex_tell_waiting
	while :; do
		_mutex_now
		[ "$now" -lt "$till" ] || return 1
		kill -0 $$ 2>/dev/null || return 1
		[ "$now" -lt $((kept + 900)) ] || return 1
		if [ "$now" -ge $((kept + 250)) ]; then
			_mutex_call /v3/lease/keepalive "{\"ID\":\"$lease\"}" "$((now + timeout))"
			case $? in 0) [ -n "$v_ttl" ] || return 1; kept=$now ;; 2) return 2 ;; esac
			_mutex_now
		fi
		if [ -n "$watching" ]; then
			left=$((till - now))
			[ $left -le 300 ] || left=300
			_mutex_watch $left "$gone" 2 || { _mutex_fail_over; _mutex_sleep 10; }
		fi
		_mutex_now
		_mutex_step look "$((now + timeout))" "$look"
		case $? in
		1) _mutex_unwatch; continue ;;
		2) _mutex_unwatch; return 2 ;;
		esac
		case $v_verdict in
		held*)
			_mutex_unwatch
			token=$v_token
			_mutex_held "$first"
			return 0
			;;
		turn)
			_mutex_unwatch
			watching=''
			_mutex_claim turn || return
			case $v_verdict in held*) return 0 ;; lost) return 1 ;; esac
			;;
		wait)
			target=$v_watch gone=$v_watches
			if [ -n "${v_restore:-}" ]; then
				older=$v_restore
				_mutex_now
				_mutex_step restore_tail "$((now + timeout))"
			fi
			if [ "$watching" = "$target" ]; then
				# After an event, look at once: no other watch is needed for the turn.
				if [ "${open:-1}" = 0 ] && _mutex_event; then target=''; fi
			fi
			_mutex_unwatch
			watching=$target
			;;
		*) _mutex_unwatch; return 1 ;;
		esac
	done
}

_mutex_tell_waiting() {
	_mutex_now
	_mutex_step standing "$((now + timeout))" || return 0
	[ -n "$v_holder$v_delay" ] || return 0
	_mutex_say "waiting: $(_mutex_describe held "$v_waiting" | head -n 1)"
}

_mutex_call() { _mutex_send call "$1" "$3" "$2"; } # PATH BODY TILL

_mutex_revoke() { # TILL
	_mutex_call /v3/lease/revoke "{\"ID\":\"$lease\"}" "$1"
	case $? in 0 | 2 | 7) return 0 ;; *) return 1 ;; esac
}

# Ends what an attempt has, or may get by a send that is still on its way: leave the queue, cancel, revoke. TILL.
_mutex_clean() {
	queue_lease=$lease
	if [ "$queued" = true ]; then _mutex_leave "$1" || return; fi
	if [ -n "$claimed" ] || [ "$doubt" = true ]; then _mutex_cancel "$1" || return; fi
	lease=$queue_lease
	[ -z "$lease" ] || _mutex_revoke "$1"
}

_mutex_leave() {
	for _ in 1 2 3 4 5; do
		_mutex_step leave "$1" || return
		[ "$v_verdict" != left ] || return 0
		older=$v_older
		_mutex_step leave_as_tail "$1" || return
		case $v_verdict in left) return 0 ;; withdraw) break ;; esac
	done
	_mutex_step withdraw "$1" # the tail is not put back; another waiter restores it
}

# Puts the tombstone; where etcd is out of space, gives back without one, and fails.
_mutex_cancel() {
	queue_lease=$lease lease=''
	if _mutex_call /v3/lease/grant '{"TTL":"3600"}' "$1"; then
		lease=$v_id
		_mutex_step cancel "$1" && [ "$v_verdict" = cancelled ] && lease=$queue_lease && return 0
	fi
	lease=$queue_lease
	_mutex_step withdraw "$1"
	return 1
}

_mutex_give_up() {
	_mutex_unwatch
	[ -n "$claimed$lease" ] || [ "$doubt" = true ] || return 0
	_mutex_now
	saved=$v_message
	_mutex_clean $((now + timeout)) || _mutex_later 360000 _mutex_clean
	v_message=$saved
}

# Does something in the background until it succeeds: HUNDREDTHS FUNCTION, which takes TILL. It goes on after the
# script has ended, with a directory of its own.
_mutex_later() (
	from=$hold
	hold=$(_mutex_new) || return
	cp "$from/login" "$hold/" 2>/dev/null
	_mutex_now
	end=$((now + $1))
	chore() {
		trap '' HUP INT
		trap - TERM
		pause_=10
		until "$1" $((now + 500)); do
			_mutex_sleep $pause_
			[ $pause_ -ge 500 ] || pause_=$((pause_ * 2))
			_mutex_now
			[ "$now" -lt $end ] || break
		done
		rm -rf "$hold"
	}
	chore "$2" </dev/null >/dev/null 2>&1 9<&- &
)

# Loads a hold that this or another process took. Fails if there is none.
_mutex_load() {
	_mutex_setup
	hold=${1:-}
	wait_='' claimed='' settings='{}' first=''
	[ -n "$hold" ] && [ -r "$hold/state" ] || return
	# shellcheck disable=SC1091
	. "$hold/state"
	IFS= read -r name <"$hold/name"
}

# Writes down why the hold is over, unless that is known: REASON, and whether another holds the lock.
_mutex_lose() {
	(set -C && printf '%s\n' "$1 ${2:-}" >"$hold/lost") 2>/dev/null || return 0
	# Else a send of the acquisition that is still on its way would take the lock for nobody. After a deadline the
	# release sees to that: the hold may stand.
	if [ "$doubt" = true ] && [ "$1" != deadline ]; then _mutex_later 360000 _mutex_cancel; fi
}

# Says that the hold is over, and returns how.
_mutex_is_lost() {
	reason='' another=''
	[ ! -r "$hold/lost" ] || read -r reason another <"$hold/lost"
	status=4
	[ "$another" != true ] || status=3
	[ "$reason" != deadline ] || status=5
	[ ! -d "$hold" ] || _mutex_fail lost $status "lock \"$name\" is lost: $reason" || return
	return $status
}

# Extends the hold: PROGRESS, and yes for a heartbeat, which is no progress and leaves the alert alone.
_mutex_extend() {
	[ ! -e "$hold/lost" ] || _mutex_is_lost || return
	_mutex_now
	sent=$now
	read -r deadline <"$hold/deadline" || return 4
	if [ "$now" -ge "$deadline" ]; then
		_mutex_lose deadline
		_mutex_is_lost || return
	fi
	[ "$2" = yes ] || _mutex_write progress "$1"
	read -r alert_at <"$hold/alert_at"
	# Never behind a wall clock that was set back.
	seen=''
	[ "$2" != yes ] || read -r seen <"$hold/reported"
	body=$(_mutex_eval '
		([now * 1000 | floor, $least] | max) as $at | ($at + $unlock) as $unlock_at
		| ([if $beat == "yes" then $stored else $at + $alert end, $unlock_at] | min) as $alert_at
		| .fields = { alert_at: ($alert_at | time), auto_unlock_at: ($unlock_at | time),
			alive: (($at | time) + if $progress == "" then "" else " " + ($progress | cut(1024)) end) }
		| "\($alert_at) \($unlock_at) \(body("alive") | tojson)"' --arg progress "$1" --arg beat "$2" \
		--argjson least "$((at + (sent - since) * 10))" --argjson alert "$((alert * 10))" --argjson unlock "$((unlock * 10))" \
		--argjson stored "$alert_at" </dev/null)
	seen=''
	alert_at=${body%% *} body=${body#* }
	unlock_at=${body%% *} body=${body#* }
	limit=$((now + 5 * timeout))
	[ $limit -le "$deadline" ] || limit=$deadline
	_mutex_step alive $limit "$body"
	case $? in
	1)
		_mutex_now
		[ "$now" -ge "$deadline" ] || _mutex_fail unavailable 1 "etcd did not answer: $v_message" || return
		_mutex_lose deadline
		_mutex_is_lost || return
		;;
	2) _mutex_fail refused 1 "etcd refuses: $v_message" || return ;;
	esac
	if [ "$v_verdict" = lost ]; then
		_mutex_lose "$v_reason" "$v_held"
		_mutex_is_lost || return
	fi
	_mutex_now
	_mutex_write reported "$v_reported"
	if [ "$v_verdict" = again ]; then # another process has reported progress, which the heartbeat takes over
		_mutex_write progress "$v_progress"
		[ "$v_alert_at" = 0 ] || _mutex_write alert_at "$v_alert_at"
		return 1
	fi
	[ "$2" = yes ] || _mutex_write alert_at "$alert_at"
	_mutex_raise unlock_at "$unlock_at"
	_mutex_raise deadline $((sent + unlock - margin))
}

_mutex_raise() { # FILE NUMBER
	read -r known <"$hold/$1" || return
	[ "$known" -ge "$2" ] || _mutex_write "$1" "$2"
}

# Notices what happens to the hold, until it is over; runs in the background. A command that it has to stop has its pid
# in $hold/command.
_mutex_keep() {
	trap '_mutex_unwatch; exit 0' TERM
	trap '' HUP INT
	trap - EXIT
	: >"$hold/ready"
	beat_at=999999999999 asked='' extended=''
	[ -z "$heartbeat" ] || beat_at=$((since + (unlock - margin) / 3))
	while [ -e "$hold/state" ] && [ ! -e "$hold/over" ]; do
		_mutex_now
		read -r deadline <"$hold/deadline" || return
		[ "$now" -lt "$deadline" ] || _mutex_lose deadline
		if [ -e "$hold/lost" ]; then
			_mutex_told_lost
			return
		fi
		kill -0 $$ 2>/dev/null && kill -0 "$parent" 2>/dev/null || { _mutex_orphaned; return; }
		if [ "$now" -ge $beat_at ]; then
			progress=''
			[ ! -r "$hold/progress" ] || progress=$(cat "$hold/progress")
			if _mutex_extend "$progress" yes 2>/dev/null; then
				beat_at=$((sent + (unlock - margin) / 3))
			else
				_mutex_now
				beat_at=$((now + 100))
			fi
			continue
		fi
		span=1000
		for end in "$deadline" $beat_at; do [ $((end - now)) -ge $span ] || span=$((end - now)); done
		[ $span -ge 5 ] || span=5
		_mutex_watch $span "$watches" 3
		standing=$?
		_mutex_now
		left=$timeout
		[ $((deadline - now)) -ge $left ] || left=$((deadline - now))
		if [ $left -gt 0 ] && _mutex_step read $((now + left)) "$reads" && [ ! -e "$hold/over" ]; then
			case $v_verdict in
			lost) _mutex_lose "$v_reason" "$v_held" ;;
			still_held) _mutex_learn ;;
			esac
		fi
		if [ -e "$hold/lost" ] || [ -e "$hold/over" ]; then
			:
		elif [ $standing = 0 ]; then
			_mutex_event
		else
			_mutex_fail_over
			_mutex_now
			[ $((deadline - now)) -lt 50 ] || _mutex_sleep 50
		fi
		_mutex_unwatch
	done
}

# What others wrote into the record: that somebody asks the holder to finish, or gave it more time.
_mutex_learn() {
	if [ -n "${v_asked:-}" ] && [ "$v_asked" != "$asked" ]; then
		asked=$v_asked
		_mutex_write asked "$asked"
		MUTEX_ASKED_BY=$(printf '%s' "$asked" | jq -r '.by // "" | tostring | gsub("[\\p{C}]"; "?")')
		MUTEX_ASKED_REASON=$(printf '%s' "$asked" | jq -r '.reason // "" | tostring | gsub("[\\p{C}]"; "?")')
		export MUTEX_ASKED_BY MUTEX_ASKED_REASON
		_mutex_say "the holder of lock \"$name\" was asked to finish by $MUTEX_ASKED_BY: $MUTEX_ASKED_REASON"
		_mutex_hook "$on_asked"
	fi
	if [ -n "${v_extended:-}" ] && [ "$v_extended" != "$extended" ]; then
		extended=$v_extended
		_mutex_now
		read -r known <"$hold/unlock_at"
		# The deadline moves by as much as that in the record, whose clock is not this one.
		eval "$(printf '%s' "$extended" | jq -r --arg unlock_at "$v_unlock_at" --argjson known "$known" \
			'(($unlock_at | tonumber * 1000 | floor) - $known) as $moved | (.seconds | if type == "number" then . else 0 end) as $given
			| "moved=\($moved / 10 | floor) given=\($given * 100 | floor)"')"
		if [ "$moved" -gt 0 ]; then
			target=$((deadline + moved))
			if [ "$moved" -gt "$given" ] && [ $target -gt $((now + given - margin)) ]; then target=$((now + given - margin)); fi
			_mutex_write unlock_at $((known + moved * 10))
			_mutex_raise deadline $target
		fi
	fi
	v_asked='' v_extended=''
}

_mutex_hook() {
	[ -z "$1" ] || (set +f; eval "$1") 9<&-
}

_mutex_told_lost() {
	read -r reason _ <"$hold/lost"
	_mutex_say "lock \"$name\" is lost: $reason"
	_mutex_hook "$on_lost"
	[ ! -s "$hold/command" ] || _mutex_stop "$reason"
}

# TERM, and KILL after the grace; if time ran out, well before the lock can be removed.
_mutex_stop() {
	read -r command grace <"$hold/command"
	if [ "$1" = deadline ] && [ "$grace" -gt $((margin * 3 / 4)) ]; then grace=$((margin * 3 / 4)); fi
	_mutex_signal TERM
	_mutex_now
	kill_at=$((now + grace))
	while _mutex_signal 0 && [ "$now" -lt $kill_at ] && [ ! -e "$hold/over" ]; do
		_mutex_sleep 5
		_mutex_now
	done
	_mutex_signal KILL
}

_mutex_signal() { kill -s "$1" -- "$command" 2>/dev/null; }

# The script was killed: its command must not go on unwatched.
_mutex_orphaned() {
	[ -s "$hold/command" ] || return 0
	_mutex_stop orphaned
	if ! kill -0 "$parent" 2>/dev/null; then
		_mutex_release
		rm -rf "$hold"
	fi
}

_mutex_start_keeper() {
	_mutex_keep </dev/null >/dev/null 3<&- &
	printf '%s\n' $! >"$hold/keeper"
}

# A signal to a child that has no traps of its own yet may run its parent's in bash, or get lost.
_mutex_stop_keeper() {
	: >"$hold/over"
	read -r keeper <"$hold/keeper" 2>/dev/null || return 0
	tries=0
	until [ -e "$hold/ready" ] || [ $tries = 200 ]; do
		tries=$((tries + 1))
		_mutex_sleep 5
	done
	kill "$keeper" 2>/dev/null
}

# Gives the lock back. 1: etcd did not answer, and the release goes on in the background.
_mutex_release() {
	: >"$hold/over"
	if [ -e "$hold/lost" ]; then
		read -r reason _ <"$hold/lost"
		[ "$reason" = deadline ] || _mutex_is_lost || return
	fi
	was_in_doubt=$doubt
	_mutex_now
	_mutex_send_release $((now + 5 * timeout))
	case $? in
	0) ;;
	2) _mutex_fail refused 1 "etcd refuses: $v_message" || return ;;
	*)
		_mutex_later $((unlock + 6000)) _mutex_send_release
		_mutex_fail unavailable 1 "etcd did not answer, the release of lock \"$name\" goes on in the background" || return
		;;
	esac
	if [ "$v_verdict" = lost ]; then
		rm -f "$hold/lost"
		_mutex_lose "$v_reason" "$v_held"
		_mutex_is_lost || return
	elif [ -e "$hold/lost" ] && [ $unanswered = true ]; then
		_mutex_is_lost || return
	fi
	rm -f "$hold/lost"
}

_mutex_send_release() { # TILL
	if [ "${was_in_doubt:-$doubt}" = true ]; then
		if _mutex_call /v3/lease/grant '{"TTL":"3600"}' "$1"; then
			lease=$v_id
			_mutex_step release_in_doubt "$1" || return
			[ "$v_verdict" = withdraw ] || return 0
		fi
		_mutex_later 360000 _mutex_cancel # etcd is out of space for a tombstone
	fi
	release=''
	[ ! -r "$hold/release" ] || read -r release <"$hold/release"
	_mutex_step release "$1" "$release"
}

# ---- What scripts call.

# mutex_lock NAME [OPTION...] takes a lock for this shell, and sets MUTEX_HOLD, MUTEX_NAME, MUTEX_UUID and MUTEX_TOKEN.
# 1: etcd did not answer or refused; 2: bad input; 3: another has it. MUTEX_ERROR says more, in JSON.
mutex_lock() {
	MUTEX_ERROR='' _mutex_before=${MUTEX_HOLD:-}
	MUTEX_HOLD=$(_mutex_new) || return 1
	if (_mutex_lock "$@"); then
		MUTEX_NAME=$1
		read -r MUTEX_UUID <"$MUTEX_HOLD/uuid"
		read -r MUTEX_TOKEN <"$MUTEX_HOLD/token"
		export MUTEX_HOLD MUTEX_NAME MUTEX_UUID MUTEX_TOKEN
	else
		set -- $?
		MUTEX_ERROR=$(cat "$MUTEX_HOLD/error" 2>/dev/null) || MUTEX_ERROR=''
		rm -rf "$MUTEX_HOLD"
		MUTEX_HOLD=$_mutex_before
		return "$1"
	fi
}

_mutex_lock() {
	_mutex_setup
	hold=$MUTEX_HOLD heartbeat=''
	_mutex_options "$@" && _mutex_settings $$ no || return
	trap 'trap "" HUP INT TERM; _mutex_give_up; exit 129' HUP
	trap 'trap "" HUP INT TERM; _mutex_give_up; exit 130' INT
	trap 'trap "" HUP INT TERM; _mutex_give_up; exit 143' TERM
	(exec sh -c 'echo $PPID') >"$hold/waiter"
	_mutex_acquire || return
	trap '' HUP INT TERM
	printf '%s\n' "$uuid" >"$hold/uuid"
	printf '%s\n' "$token" >"$hold/token"
	parent=$$
	_mutex_start_keeper
}

# mutex_alive [PROGRESS] [--expect D] [--auto-unlock-after D] says that the work goes on, and postpones both deadlines.
# It fails if the lock is lost: 3 if another has it, 4 if nobody has, 5 if etcd was out of reach for too long; 1: etcd did
# not answer, and the hold stands. The command of mutex_run may call it, too.
mutex_alive() {
	MUTEX_ERROR=''
	(_mutex_alive "$@") || {
		set -- $?
		MUTEX_ERROR=$(cat "${MUTEX_HOLD:-/}/error" 2>/dev/null) || MUTEX_ERROR=''
		return "$1"
	}
}

_mutex_alive() {
	_mutex_load "${MUTEX_HOLD:-}" || { echo "mutex.sh: there is no lock" >&2; return 4; }
	progress=''
	case ${1-} in --expect | --auto-unlock-after) ;; *) progress=${1-}; [ $# -eq 0 ] || shift ;; esac
	known_unlock=$unlock
	while [ $# -ge 2 ]; do
		_mutex_option "$1" "$2" || _mutex_fail refused 2 "what does $1 $2 mean?" || return
		shift 2
	done
	[ "$unlock" = "$known_unlock" ] || _mutex_margin
	_mutex_extend "$progress" no
}

# mutex_unlock gives the lock back. Like mutex_alive, it fails if the lock had been lost before.
mutex_unlock() {
	MUTEX_ERROR=''
	[ -d "${MUTEX_HOLD:-}" ] || { echo "mutex.sh: there is no lock" >&2; return 4; }
	if (_mutex_unlock); then set -- 0; else
		set -- $?
		MUTEX_ERROR=$(cat "$MUTEX_HOLD/error" 2>/dev/null) || MUTEX_ERROR=''
	fi
	rm -rf "$MUTEX_HOLD"
	unset MUTEX_HOLD MUTEX_NAME MUTEX_UUID MUTEX_TOKEN
	return "$1"
}

_mutex_unlock() {
	_mutex_load "$MUTEX_HOLD" || return 4
	trap '' HUP INT TERM
	_mutex_stop_keeper
	_mutex_release
}

# mutex_token prints the fencing token: a number that grows with every acquisition of any lock.
mutex_token() { printf '%s\n' "${MUTEX_TOKEN:?there is no lock}"; }

# mutex_lost prints why the lock was lost, and fails if it is held: by then nobody has to stop.
mutex_lost() { (
	_mutex_load "${MUTEX_HOLD:-}" || return
	_mutex_now
	read -r deadline <"$hold/deadline"
	[ "$now" -lt "$deadline" ] || _mutex_lose deadline
	[ -e "$hold/lost" ] && read -r reason _ <"$hold/lost" && printf '%s\n' "$reason"
) }

# mutex_asked prints the request to finish, if there is one: a JSON object with by and reason. Else it fails.
mutex_asked() { cat "${MUTEX_HOLD:-/}/asked" 2>/dev/null; }

# ---- A command under a lock.

# mutex_run NAME [OPTION...] -- COMMAND [ARGUMENT...] takes the lock, runs the command, and gives the lock back. Extends
# the lock while the command runs, and stops the command when the lock is lost. Returns the command's status; 1, 2 and 3
# as mutex_lock, 5 if the lock was lost, 126 and 127 if the command cannot be started. HUP, INT, QUIT and TERM to the
# shell stop the command, and then do what they do without mutex_run.
mutex_run() {
	_mutex_got=''
	_mutex_traps=$(mktemp "${TMPDIR:-/tmp}/mutex.XXXXXXXX") || return 1
	trap >"$_mutex_traps" # dash prints nothing in $( )
	set -- "$_mutex_traps" "$@"
	_mutex_traps=$(cat "$1")
	rm -f "$1"
	shift
	{ (_mutex_run "$@") <&3 3<&- & } 3<&0
	_mutex_child=$!
	for _mutex_sig in HUP INT QUIT TERM; do
		# shellcheck disable=SC2064 # now, not later
		trap "_mutex_got=$_mutex_sig; kill -s TERM $_mutex_child" $_mutex_sig
	done
	while :; do
		_mutex_before=$_mutex_got
		if wait "$_mutex_child"; then set -- 0; else set -- $?; fi
		# A signal ends the wait, not the command.
		if [ "$_mutex_got" = "$_mutex_before" ] || ! kill -0 "$_mutex_child" 2>/dev/null; then break; fi
	done
	trap - HUP INT QUIT TERM
	eval "$_mutex_traps"
	[ -z "$_mutex_got" ] || kill -s "$_mutex_got" $$
	return "$1"
}

# MUTEX_GO is read by a shell that becomes the command once the lock is held: so the record can say which process it is.
_mutex_run() {
	exec 3<&0 </dev/null
	_mutex_setup
	heartbeat=yes signalled=''
	hold=$(_mutex_new) || exit 1
	mkfifo "$hold/go" && exec 8<>"$hold/go"
	trap 'rm -rf "$hold"' EXIT
	_mutex_options "$@" || exit
	shift $(($# - rest))
	[ "${1-}" != -- ] || shift
	[ $# -gt 0 ] || _mutex_fail refused 2 "mutex_run: there is no command" || exit
	if ! command -v "$1" >/dev/null 2>&1; then
		status=127
		[ ! -e "$1" ] || status=126
		_mutex_fail refused $status "$1 cannot be started" || exit
	fi
	session=''
	if command -v setsid >/dev/null; then session=setsid; fi
	# shellcheck disable=SC2016 # for that shell
	MUTEX_HOLD=$hold MUTEX_NAME=$name $session sh -c '
		IFS=" " read -r MUTEX_UUID MUTEX_TOKEN <&4 && [ -n "$MUTEX_TOKEN" ] || exit 1
		exec 4<&-
		export MUTEX_HOLD MUTEX_NAME MUTEX_UUID MUTEX_TOKEN
		exec "$@"' sh "$@" <&3 3<&- 4<"$hold/go" 8>&- &
	pid=$!
	exec 3<&-
	trap 'trap "" TERM; _mutex_give_up; kill $pid; exit 143' TERM
	_mutex_settings $pid yes && { [ -z "$per" ] || _mutex_period; } && _mutex_acquire || { status=$?; kill $pid; exit $status; }
	trap signalled=yes TERM
	if [ -n "$per" ] && ! _mutex_mark; then
		_mutex_release
		kill $pid
		exit 0
	fi
	command=$pid
	[ -z "$session" ] || command=-$pid
	printf '%s\n' "$command $grace" >"$hold/command"
	parent=$(exec sh -c 'echo $PPID')
	_mutex_start_keeper 8>&-
	printf '%s\n' "$uuid $token" >&8
	exec 8>&-
	while :; do
		if [ -n "$signalled" ]; then
			signalled=''
			_mutex_signal TERM
		fi
		wait $pid
		status=$?
		[ -n "$signalled" ] || break
	done
	trap '' TERM
	if [ -e "$hold/lost" ]; then
		_mutex_stop lost # the rest of its group
		status=5
	fi
	_mutex_stop_keeper
	_mutex_release
	case $? in 3 | 4 | 5) status=5 ;; esac
	exit $status
}

# Exits if the period is used up.
_mutex_period() {
	_mutex_now
	begins=$(date +%s)
	begins=$((begins - (begins - offset) % per))
	_mutex_step period $((now + 5 * timeout)) || _mutex_fail unavailable 1 "etcd did not answer: $v_message" || return
	seen=$v_seen used=${v_mark%% *}
	used=${used%%.*}
	case $used in '' | *[!0-9]*) return 0 ;; esac
	[ "$used" -ge $begins ] || return 0
	_mutex_say "not run: the period is used up: $(printf '%s' "$v_mark" | tr -d '[:cntrl:]')"
	kill $pid
	exit 0
}

# Writes, as the holder, that this period is used up. Fails if another was faster.
_mutex_mark() {
	mark="$begins $uuid $(uname -n)"
	_mutex_now
	_mutex_step mark $((now + 5 * timeout)) && [ "$v_verdict" = marked ]
}
