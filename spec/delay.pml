/* delay.pml - three forms of a lock delay, none of which is built: see
 * docs/adr/0017-lock-delay.md. One hold is ended by force or by its deadline,
 * its holder may still be at work, and for a while nobody is to follow it.
 *
 *   KEY      the removal also puts .delays/<lock>, with a lease; whoever takes
 *            the lock compares that it is absent
 *   REPLACE  the removal overwrites the record by one of the unlocker's own. etcd
 *            refuses to delete and put a key in one transaction, so the create
 *            revision of uuid stays
 *   TWO      the removal deletes, and then the unlocker takes the lock
 *
 *   D1 kept      nobody who knows delays takes the lock before the delay is over
 *   D2 guard     no guarded write of the former holder after its hold ended
 *   D3 told      the end of the hold is a deletion of uuid, which holders watch
 *   D4 order     tokens grow
 *   D5 kept out  (-DALL) nobody does, not even a client that does not know delays
 *
 * KEY passes; with ALL it fails. REPLACE fails by D2, with GUARD_MOD (the holder
 * compares M(uuid) = T) by D3; with NO_D3 too it passes, with ALL as well. TWO
 * fails by D1.
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
bool delay = 0;                                 /* .delays/<lock> */
bool ended = 0, told = 0, over = 0;             /* ghosts: the hold ended; uuid was deleted then; the delay is over */
byte high = 1;                                  /* ghost: the highest token */

inline take(knows) {
	rev++; lk = 1; lk_cre = rev; lk_mod = rev;
	assert(rev > high); high = rev;                         /* D4 */
#ifdef ALL
	assert(over);                                           /* D5 */
#else
	assert(!knows || over)                                  /* D1 */
#endif
}

proctype Unlocker() {
	/* compares the hold as seen; it is the only one that ends it here */
#ifdef FORM_KEY
	d_step { lk = 0; lk_cre = 0; lk_mod = 0; delay = 1; ended = 1; told = 1 };
	d_step { delay = 0; over = 1 }                          /* the lease ends */
#endif
#ifdef FORM_REPLACE
	d_step { rev++; lk_mod = rev; ours = 1; ended = 1 };
	d_step { lk = 0; lk_cre = 0; lk_mod = 0; ours = 0; over = 1 }
#endif
#ifdef FORM_TWO
	d_step { lk = 0; lk_cre = 0; lk_mod = 0; ended = 1; told = 1 };
	if
	:: d_step { !lk -> rev++; lk = 1; lk_cre = rev; lk_mod = rev; ours = 1; high = rev };
		d_step { lk = 0; lk_cre = 0; lk_mod = 0; ours = 0; over = 1 }
	:: d_step { lk -> skip }
	fi
#endif
}

proctype Former() {                             /* does not know yet */
end:	do
	:: d_step { GUARD -> assert(!ended) }           /* D2: its write is let in */
#ifndef NO_D3
	:: d_step { ended -> assert(told) } -> break    /* D3 */
#endif
	od
}

proctype Client(bool knows) {
end:	do
	:: d_step { !lk && (!knows || !delay) -> take(knows) } -> break
	od
}

init { atomic { run Unlocker(); run Former(); run Client(1); run Client(0) } }
