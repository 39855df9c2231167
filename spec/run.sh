#!/bin/bash
# Checks the models with spin: the protocol as built must pass, and every variant with one guard left out must fail.
# usage: spec/run.sh [long]      needs spin, gcc, tcc. Exit 0 when every line is as expected.
# Without long, one thing goes wrong in a run instead of two, and that is enough to break every variant.
set -u
here=$(cd "$(dirname "$0")" && pwd)
long=${1:-}
f=1 flips=2 optimized=-O1 bounds='-m100000 -w21' # faults, changes of the mode of etcd; of what spin's search allocates
[ -z "$long" ] || f=2 flips=4 optimized='-O2 -DCOLLAPSE' bounds='-m1000000 -w25'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
for tool in spin gcc tcc; do
	command -v $tool > /dev/null || { echo "spec: $tool is missing (Debian: apt-get install spin gcc tcc)"; exit 1; }
done
right=0 wrong=0

# search COMPILER... compiles what spin generated, and runs it.
search() {
	rm -f pan ./*.trail
	"$@" -w -DVECTORSZ=2048 -o pan pan.c > out 2>&1 && ./pan $pan > out 2>&1
}

# Most searches are short: gcc takes longer to compile one than tcc's slow code takes to run it. So tcc has a second of processor time.
quick_search() (
	ulimit -t 1
	search tcc "$@" 2> /dev/null
)

# check pass|fail MODEL safety|LTL-NAME DEFINES...
check() {
	local want=$1 model=$2 property=$3; shift 3
	local cc=-DSAFETY pan=$bounds defines=("$@") got states why
	if [ "$property" != safety ]; then
		cc=-DNFAIR=4 pan="$pan -a -f -N $property"; defines+=(-DLTL)
	fi
	spin -a "${defines[@]}" "$here/$model.pml" > out 2>&1 && { quick_search $cc || [ $? -lt 128 ] || search gcc $optimized $cc; }
	if grep -aq 'errors: 0' out && ! grep -aq 'Search not completed\|max search depth too small' out; then got=pass
	elif grep -aqE '^pan:1: (assertion violated|invalid end state|acceptance cycle)' out; then got=fail
	else got=error
	fi
	states=$(awk '/states, stored/ {print $1}' out)
	why=$(grep -a '^pan:1:' out | sed 's/^pan:1: //; s/ (at depth.*//' | cut -c1-60)
	if [ $got = "$want" ]; then right=$((right + 1)); else wrong=$((wrong + 1)); echo "WRONG, the output follows:"; head -30 out; fi
	printf '%-6s %-7s want %-4s got %-5s %10s states  %s  %s\n' "$model" "$property" "$want" $got "${states:-?}" "$*" "$why"
}
passes() { check pass "$@"; }
breaks() { check fail "$@"; }

# One lock: lost answers, late commits, pauses, crashes, sweepers, fencing.
passes lock safety -DFAULTS=$f
passes lock gone -DFAULTS=$f -DNC=1
passes lock nolong -DFAULTS=$f -DNC=1
for mutant in UNFENCED COHERENCE_STRICT NO_GRACE ALIVE_BLIND UNLOCK_BLIND NO_CANCEL_GUARD RELEASE_IN_DOUBT REFUSED_IN_DOUBT; do
	breaks lock safety -DFAULTS=1 -D$mutant
done
for mutant in SWEEP_UUID_ONLY SWEEP_BLIND LOST_IN_DOUBT; do breaks lock safety -DFAULTS=1 -DNC=1 -D$mutant; done
breaks lock safety -DFAULTS=1 -DNC=1 -DALIVE_NO_MONO -DNV=2
breaks lock gone -DFAULTS=1 -DNC=1 -DNO_SWEEPER

# An operator gives the holder more time.
passes lock safety -DFAULTS=1 -DNC=1 -DOPS=2 -DTTL=2
for mutant in EXTEND_BY_HOLD EXTEND_ANNOUNCED ALIVE_NO_MONO; do breaks lock safety -DFAULTS=1 -DNC=1 -DOPS=1 -D$mutant; done
breaks lock safety -DFAULTS=1 -DNC=1 -DOPS=1 -DNV=0 -DSWEEP_UUID_ONLY
breaks lock safety -DFAULTS=1 -DNC=1 -DOPS=2 -DTTL=2 -DEXTEND_ALERT_BLIND
breaks lock safety -DFAULTS=0 -DOPS=1 -DEXTEND_BLIND

# Proof of death. A witness that lies of exactly this hold (LIAR) is the only way to free a living holder, and only until the holder
# or an operator extends (LIE).
passes deaths safety -DEXT=1
passes deaths safety -DEXT=1 -DREUSE
passes deaths safety -DEXT=1 -DJUNK=0 -DRESERVE
passes deaths safety -DEXT=1 -DJUNK=0 -DLIE
passes deaths safety -DEXT=1 -DREUSE -DSTATE_NO_UUID
passes deaths safety -DEXT=1 -DREUSE -DREMOVE_NO_TOKEN
passes deaths safety -DEXT=1 -DJUNK=0 -DOPS=0 -DASK=1
breaks deaths safety -DEXT=1 -DJUNK=0 -DOPS=0 -DASK=1 -DASK_BLIND
passes deaths safety -DEXT=1 -DJUNK=0 -DOPS=0 -DGROUP
for mutant in GROUP_UNSEEN GROUP_ALONE GROUP_FIRST; do breaks deaths safety -DEXT=1 -DJUNK=0 -DOPS=0 -DGROUP -D$mutant; done
breaks deaths safety -DGROUP -DREACH
breaks deaths safety -DREACH
breaks deaths safety -DLIAR
for mutant in ADOPT_SILENTLY ADOPT_FIRST DETACH_KEEPS STATE_DETACHED_BLIND REMOVE_NO_DEATH REMOVE_BLIND; do breaks deaths safety -D$mutant; done
for mutant in STATE_NO_TOKEN READ_TOKEN_BLIND; do breaks deaths safety -DREUSE -D$mutant; done
breaks deaths safety -DRESERVE -DREAD_DETACHED_BLIND
for mutant in STATE_AGAIN READ_DISPUTE_BLIND READ_ALIVE_ONLY READ_DEADLINE_ONLY REMOVE_NO_DEADLINE REMOVE_NO_ALIVE ALIVE_SILENT; do
	breaks deaths safety -DLIE -DEXT=1 -D$mutant
done

# The queue: tickets, a leased tail, marks.
passes queue safety -DFAULTS=$f
passes queue safety -DFAULTS=$f -DLATE_ENQ -DOWN_LEASE
passes queue safety -DFAULTS=1 -DN=4
passes queue safety -DFAULTS=$f -DMIXED
for mutant in NO_TICKET_GUARD NO_TAIL_GUARD NO_LEASE EDGE; do breaks queue safety -DFAULTS=1 -DMIXED -D$mutant; done
passes queue live -DFAULTS=$f -DN=2
passes queue drain -DFAULTS=$f -DN=2
passes queue drain -DFAULTS=$f -DN=2 -DLATE_ENQ -DOWN_LEASE
for mutant in NO_MARK NO_SCAN; do breaks queue safety -DFAULTS=1 -DN=4 -D$mutant; done
for mutant in NO_TICKET_GUARD NO_TAIL_GUARD NO_LEASE EDGE; do breaks queue safety -DFAULTS=1 -D$mutant; done
breaks queue safety -DFAULTS=1 -DLATE_ENQ -DOWN_LEASE -DNO_CANCEL_GUARD
breaks queue drain -DFAULTS=1 -DN=2 -DNO_SWEEPER
breaks queue drain -DFAULTS=1 -DN=2 -DLATE_ENQ

# The same with a third one who passes the queue wherever it can: starvation. The last of them is the rule of once: whoever left as the tail
# deleted it, and nobody put one back.
passes queue safety -DFAULTS=$f -DN=2 -DPOLL -DHELD
passes queue live -DFAULTS=$f -DN=2 -DPOLL -DHELD
breaks queue safety -DFAULTS=1 -DN=2 -DPOLL -DHELD -DDROP_TAIL
breaks queue safety -DFAULTS=1 -DN=4 -DHELD -DHEAL_BLIND
breaks queue drain -DFAULTS=1 -DN=2 -DHELD -DQUIT_BLIND
breaks queue live -DFAULTS=1 -DN=2 -DPOLL -DHELD -DNO_HEAL
breaks queue live -DFAULTS=1 -DN=2 -DPOLL -DHELD -DNO_HEAL -DDROP_TAIL

# Permits, readers and writers.
for mix in 1 2 3 5; do passes permits safety -DFAULTS=$f -DMIX=$mix; done
passes permits safety -DFAULTS=1 -DMIX=1 -DNO_SLOT_GUARD
passes permits live -DFAULTS=$f -DMIX=4
passes permits live -DFAULTS=0 -DMIX=1
passes permits drain -DFAULTS=$f -DMIX=4
for property in live drain; do passes permits $property -DFAULTS=$f -DMIX=6; done
for mutant in NO_RANGE_GUARD STALE_CLAIM NO_TICKET_GUARD NO_TAIL_GUARD NO_CANCEL_GUARD; do breaks permits safety -DFAULTS=1 -DMIX=1 -D$mutant; done
for mutant in NO_RANGE_GUARD NO_LOCK_GUARD NO_SLOT_GUARD JOIN_IN_DOUBT; do breaks permits safety -DFAULTS=1 -DMIX=2 -D$mutant; done
for mutant in PLAIN_BLIND LOOK_COUNTS; do breaks permits safety -DFAULTS=1 -DMIX=5 -D$mutant; done
breaks permits drain -DFAULTS=1 -DMIX=4 -DNO_SWEEPER

# Starvation of a heavy weight, of a writer and of a plain lock, as above.
passes permits live -DFAULTS=1 -DMIX=6 -DSTREAM
for mix in 2 ${long:+1}; do
	passes permits live -DFAULTS=1 -DMIX=$mix -DSTREAM
	breaks permits live -DFAULTS=1 -DMIX=$mix -DSTREAM -DNO_HEAL
	breaks permits live -DFAULTS=1 -DMIX=$mix -DSTREAM -DNO_HEAL -DDROP_TAIL
done
breaks permits safety -DFAULTS=1 -DMIX=2 -DSTREAM -DDROP_TAIL

# When a deadline may be called passed.
passes grace safety -DFLIPS=$flips
passes grace safety -DFLIPS=$flips -DPROMPT
passes grace safety -DFLIPS=$flips -DSK=3
passes grace safety -DFLIPS=$flips -DSK=3 -DPROMPT
passes grace safety -DFLIPS=$flips -DH=3 -DTTL=6 -DRB=3
for mutant in NO_OUTAGE_GRACE NO_RESTART_GRACE READ_PROBE SHORT_GRACE NO_ARRIVAL; do breaks grace safety -DFLIPS=$flips -D$mutant; done
# An owner that renews more often than the grace lasts is protected by what is watched arriving, so these need one that does not.
passes grace safety -DFLIPS=$flips -DH=3 -DTTL=6
passes grace safety -DFLIPS=$flips -DH=3 -DTTL=6 -DPROMPT
for mutant in NO_CLOCK_CHECK JUMP_IS_A_GAP; do breaks grace safety -DFLIPS=$flips -DH=3 -DTTL=6 -D$mutant; done
passes grace safety -DFLIPS=$flips -DH=3 -DTTL=6 -DSK=4
breaks grace safety -DFLIPS=$flips -DH=3 -DTTL=6 -DNO_SKEW -DSK=4
# An operator gives more time.
passes grace safety -DMORE=3 -DEND=14 -DFLIPS=2 -DPROMPT
passes grace safety -DMORE=3 -DEND=14 -DFLIPS=2 -DOLD
breaks grace safety -DMORE=3 -DEND=14 -DFLIPS=1 -DOLD -DARRIVAL_FIXED
breaks grace safety -DMORE=3 -DEND=14 -DFLIPS=1 -DPROMPT -DARRIVAL_OF_ANYBODY

# Lock delay: as built, without each of its parts, and in the forms that were not built.
passes delay safety
for mutant in ALL PUT_LATER CLIENT_BLIND LOOK_FIRST END_BLIND OLD_LEASE END_NOBODY REPLACE TWO; do breaks delay safety -D$mutant; done
breaks delay safety -DREPLACE -DGUARD_MOD
passes delay safety -DREPLACE -DGUARD_MOD -DNO_D3 -DALL

if [ "$long" = long ]; then
	# A hand-over in the release, which was not built.
	passes handover safety -DFAULTS=2
	passes handover safety -DFAULTS=1 -DRELEASE_BLIND
	passes handover safety -DFAULTS=1 -DNO_AGAIN
	for mutant in TOKEN_CREATE TOKEN_MOD NO_LEASE GRANT_BLIND LEAVE_BLIND CONFIRM_BLIND NO_LOCAL; do breaks handover safety -DFAULTS=1 -D$mutant; done

	passes lock safety -DFAULTS=3
	passes lock safety -DFAULTS=1 -DNS=2
	passes lock safety -DFAULTS=1 -DNA=2
	passes lock safety -DFAULTS=1 -DNC=3
	passes lock safety -DFAULTS=1 -DMAXT=2 -DTTL=2 -DNV=2
	passes lock safety -DFAULTS=0 -DOPS=1
	passes lock safety -DFAULTS=1 -DOPS=1
	passes lock gone -DFAULTS=1
	passes lock nolong -DFAULTS=2
	passes queue safety -DFAULTS=3
	passes queue safety -DFAULTS=1 -DN=4 -DMIXED
	passes queue live -DFAULTS=2 -DN=2 -DMIXED
	passes queue drain -DFAULTS=2 -DN=2 -DMIXED
	passes queue safety -DFAULTS=2 -DN=4
	passes queue live -DFAULTS=1
	passes queue drain -DFAULTS=1
	breaks queue drain -DFAULTS=2 -DHELD -DHEAL_UNSEEN
	for mix in 1 2 3; do passes permits safety -DFAULTS=3 -DMIX=$mix; done
	for mix in 1 2 3; do passes permits live -DFAULTS=1 -DMIX=$mix; done
	passes permits drain -DFAULTS=1 -DMIX=1
	passes deaths safety
	passes deaths safety -DREUSE
	passes deaths safety -DRESERVE
	passes deaths safety -DLIE
	passes deaths safety -DLIE -DREUSE
	for client in "" -DOLD; do
		passes grace safety -DMORE=3 $client
		passes grace safety -DMORE=3 -DPROMPT $client
	done
fi
echo "spec: $right passed, $wrong failed"
[ $wrong = 0 ]
