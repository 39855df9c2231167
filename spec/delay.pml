/* delay.pml - a lock delay: a hold is ended by force or by its deadline, its
 * holder may still be working, and others are kept out for a while. See
 * docs/protocol/operators.md#lock-delay and docs/adr/0017-lock-delay.md.
 *
 *   KEY      as built: the removal also puts .delays/<lock>, with a lease of its
 *            own; whoever takes the lock compares that it is absent. Two holds
 *            are ended one after the other, so there may be two delays, and an
 *            operator ends one that he saw
 *   REPLACE  the removal overwrites the record by one of the unlocker's own. etcd
 *            refuses to delete and put a key in one transaction, so the create
 *            revision of uuid stays
 *   TWO      the removal deletes, and then the unlocker takes the lock
 *
 *   D1 kept      nobody who knows delays takes the lock before the delay is over
 *   D2 guard     no guarded write of a former holder after its hold ended
 *   D3 told      the end of the hold is a deletion of uuid, which holders watch
 *   D4 order     tokens grow
 *   D5 kept out  (-DALL) nobody does, not even a client that does not know delays
 *   D6 comes     a delay ends, and who waits for its end gets the lock: no end state is invalid
 *
 * KEY passes; with ALL it fails. Each of these breaks D1: PUT_LATER (the key is
 * put after the removal), CLIENT_BLIND (the compare is left out), LOOK_FIRST (the
 * key is read before, not compared), END_BLIND (the operator deletes the key
 * without comparing its mod revision), OLD_LEASE (the second delay has the lease
 * of the first). END_NOBODY (nobody ends a delay: no lease) breaks D6.
 *
 * REPLACE fails by D2, with GUARD_MOD (the holder compares M(uuid) = T) by D3;
 * with NO_D3 too it passes, with ALL as well. TWO fails by D1.
 */
#ifdef TWO
#define FORM_TWO
#else
#ifdef REPLACE
#define FORM_REPLACE
#else
#define FORM_KEY
#endif
#endif
#ifdef GUARD_MOD
#define GUARD (lk && lk_mod == 1)
#else
#define GUARD (lk && lk_cre == 1)
#endif

byte rev = 1;
bool lk = 1; byte lk_cre = 1, lk_mod = 1;       /* uuid: create and mod revision; the hold with token 1 */
bool ours = 0;                                  /* the record is the unlocker's own */
byte delay = 0;                                 /* .delays/<lock>: its mod revision, 0 = there is none */
byte lease = 0;                                 /* of that key: which of the two */
bool ended = 0, told = 0;                       /* ghosts: the first hold ended; uuid was deleted then */
byte since = 0;                                 /* ghost: mod revision of the delay that must be kept, 0 = over */
byte holds = 1;                                 /* ghost: how many holds there were */
byte high = 1;                                  /* ghost: the highest token */

inline take(knows) {
	rev++; lk = 1; lk_cre = rev; lk_mod = rev; holds++;
	assert(rev > high); high = rev;                         /* D4 */
#ifdef ALL
	assert(since == 0);                                     /* D5 */
#else
	assert(!knows || since == 0);                           /* D1 */
#endif
}

#ifdef FORM_KEY
inline remove(n) {
	rev++; lk = 0; lk_cre = 0; lk_mod = 0; ended = 1; told = 1; since = rev;
#ifndef PUT_LATER
	delay = rev;
#ifdef OLD_LEASE
	lease = 1
#else
	lease = n
#endif
#endif
}

inline put_later(n) {
#ifdef PUT_LATER
	d_step { rev++; delay = rev; lease = n; since = (since -> rev : 0) };
#else
	skip
#endif
}

proctype Unlocker() {
	/* compares the hold as seen; it is the only one that ends holds here */
	d_step { remove(1) };
	put_later(1);
	do
	:: d_step { lk && holds < 4 -> remove(2) }; put_later(2); break
	:: break
	od
}

proctype Lease(byte n) {
#ifndef END_NOBODY
end:	do
	/* it ends when the time of the delay is over, with whatever key it has */
	:: d_step { delay && lease == n ->
		if
		:: since == delay -> since = 0                  /* the time of this one */
		:: else -> skip
		fi;
		delay = 0; lease = 0 } -> break
#ifdef OLD_LEASE
	:: d_step { n == 1 && delay && holds >= 2 -> delay = 0; lease = 0 } -> break  /* the time of the first */
#endif
	od
#else
	skip
#endif
}

proctype Operator() {
	byte seen;
end:	do
	:: d_step { delay -> seen = delay }; break
	od;
	do
#ifdef END_BLIND
	:: d_step { delay -> if :: since == seen -> since = 0 :: else -> skip fi; delay = 0; lease = 0 }; break
#else
	:: d_step { delay == seen -> since = 0; delay = 0; lease = 0 }; break
#endif
	:: break
	od
}
#else
proctype Unlocker() {
#ifdef FORM_REPLACE
	d_step { rev++; lk_mod = rev; ours = 1; ended = 1; since = 1 };
	d_step { lk = 0; lk_cre = 0; lk_mod = 0; ours = 0; since = 0 }
#endif
#ifdef FORM_TWO
	d_step { lk = 0; lk_cre = 0; lk_mod = 0; ended = 1; told = 1; since = 1 };
	if
	:: d_step { !lk -> rev++; lk = 1; lk_cre = rev; lk_mod = rev; ours = 1; high = rev };
		d_step { lk = 0; lk_cre = 0; lk_mod = 0; ours = 0; since = 0 }
	:: d_step { lk -> skip }
	fi
#endif
}
#endif

proctype Former() {                             /* does not know yet */
end:	do
	:: d_step { GUARD -> assert(!ended) }           /* D2: its write is let in */
#ifndef NO_D3
	:: d_step { ended -> assert(told) } -> break    /* D3 */
#endif
	od
}

proctype Client(bool knows) {
#ifdef FORM_KEY
	bool seen = 0; byte mine;
#ifdef LOOK_FIRST
	d_step { seen = (delay != 0) };
	d_step { !lk && (!knows || !seen) -> take(knows); mine = rev }
#else
#ifdef CLIENT_BLIND
	d_step { !lk -> take(knows); mine = rev }
#else
	d_step { !lk && (!knows || !delay) -> take(knows); mine = rev } /* D6: it gets there */
#endif
#endif
	/* it releases, unless the unlocker was first */
	d_step { if :: lk && lk_cre == mine -> lk = 0; lk_cre = 0; lk_mod = 0 :: else -> skip fi }
#else
end:	do
	:: d_step { !lk && (!knows || !delay) -> take(knows) } -> break
	od
#endif
}

init {
	atomic {
		run Unlocker(); run Former(); run Client(1); run Client(0);
#ifdef FORM_KEY
		run Lease(1); run Lease(2); run Operator()
#endif
	}
}
