/* handover.pml - a release that hands the lock over, which was not built: see
 * docs/adr/0010-no-hand-over-in-the-release.md.
 *
 * Whoever joins reads who is last, and names itself behind that one in its join:
 * .next/<uuid of the one before> = its own uuid, with the lease of its ticket.
 * So the holder knows who is next by one key. Its release overwrites the record
 * for that one, with the lease of that one's ticket; the record vanishes with a
 * waiter that died a moment ago. The new holder works at once, and confirms: it
 * writes the record without a lease. Until then its time is that of the lease.
 * Whose name went with somebody who died looks, and names itself again.
 *
 *   H1 one       nobody gets the lock while another may still work under it
 *   H2 order     it goes to the oldest of those who wait
 *   H3 tokens    they grow
 *   H4 guard     a guarded write of a holder that has the lock is let in
 *   H5 comes     everybody who lives gets the lock: no end state is invalid
 *   H6 soon      of a waiter that died, nothing has to wait for the time of a hold
 *
 * The token is the revision of the last hand-over or acquisition, in a key of its
 * own: the create revision of uuid stays when the record is overwritten, and its
 * mod revision moves when the holder confirms.
 *
 * It passes. Each of these breaks it: TOKEN_CREATE (H3), TOKEN_MOD (H4), NO_LEASE
 * (the record that is handed over has no lease), GRANT_BLIND (the ticket of the
 * next one is not compared), LEAVE_BLIND (who gives up does not look whether it
 * was given the lock), CONFIRM_BLIND (the confirmation does not compare the hold),
 * NO_LOCAL (a holder that did not confirm works on when its lease may be over).
 *
 * These do not: RELEASE_BLIND (a release that knows nobody does not compare that
 * nobody came), NO_AGAIN (nobody names itself again). The lock is then freed, and
 * the first in the queue takes it, as without a hand-over.
 */
#ifndef N
#define N 3             /* clients, one attempt each */
#endif
#ifndef FAULTS
#define FAULTS 2        /* deaths, and leases that end in the life of their client */
#endif
#define IDS (N+1)       /* 0 is nobody */

byte faults = FAULTS;
byte rev = 1, high = 0;                         /* high, a ghost: the highest token that was given */
byte lk = 0, lk_cre = 0, lk_mod = 0, lk_tok = 0;/* uuid, its revisions, the token */
bool lk_leased = 0;                             /* the record has the lease of lk */
byte tail = 0, last = 0;                        /* last counts tickets */
byte ticket[IDS];                               /* its number in the order; 0: none */
byte next[IDS];                                 /* .next/<uuid> */
bool lease[IDS], late[IDS];                     /* it lives; by its client's clock it may be over */
bool dead[IDS], works[IDS], knew[IDS];          /* ghosts: knew that it had the lock, once */

inline newest(x, below) {                       /* the newest ticket before this one */
	x = 0;
	for (k : 1 .. N) {
		if
		:: ticket[k] && ticket[k] < below && (x == 0 || ticket[k] > ticket[x]) -> x = k
		:: else
		fi
	}
}

inline retail() { newest(k2, 255); tail = k2 }

inline begin(x) {                               /* x has the lock, by this revision */
	for (k : 1 .. N) {
		assert(k == x || !works[k]);                    /* H1 */
		assert(!ticket[k] || k == x || (ticket[x] && ticket[k] > ticket[x]))    /* H2 */
	}
#ifdef TOKEN_CREATE
	lk_tok = lk_cre;
#else
	lk_tok = rev;
#endif
	assert(lk_tok > high); high = lk_tok                    /* H3 */
}

inline take(x) { rev++; lk = x; lk_cre = rev; lk_mod = rev; lk_leased = 0; begin(x); ticket[x] = 0; works[x] = 1; knew[x] = 1 }

inline free() { lk = 0; lk_cre = 0; lk_mod = 0; lk_tok = 0; lk_leased = 0 }

/* A lease ends: everything that has it goes. */
inline expire(x) {
	lease[x] = 0; ticket[x] = 0;
	for (k : 1 .. N) { if :: next[k] == x -> next[k] = 0 :: else fi }
	if :: lk == x && lk_leased -> free() :: else fi;
	if :: tail == x -> retail() :: else fi
}

#define GONE(x) (!ticket[x] && lk != x)

proctype Client(byte me) {
	byte before, then, mine, k, k2;

join:	/* reads the tail and the holder, and compares both when it joins */
	atomic {
		before = (tail -> tail : lk)
	}
	atomic {
		if
		:: !lk && !tail -> take(me); mine = lk_tok; goto work
		:: else
		fi;
		if
		:: !lease[me] -> goto over                      /* etcd refuses a lease that is gone */
		:: lease[me] && before && (tail == before || !tail && lk == before) ->
			last++; ticket[me] = last; tail = me; next[before] = me
		:: else -> goto join
		fi
	}

wait:	do
	:: atomic { lk == me && !late[me] -> works[me] = 1; knew[me] = 1; mine = lk_tok }; goto work
	:: atomic { !late[me] && lk != me && ticket[me] && GONE(before) ->  /* looks, and names itself again */
		newest(k2, ticket[me]);
		before = (k2 -> k2 : lk);
		if
		:: before == 0 -> take(me); mine = lk_tok; goto work
#ifndef NO_AGAIN
		:: before -> next[before] = me
#else
		:: before -> skip
#endif
		fi }
	:: atomic { late[me] -> goto over }                     /* it may have lost its position: here it gives up */
	:: atomic { faults > 0 && ticket[me] && lk != me -> faults-- } ->   /* it gives up */
		atomic {
			if
#ifndef LEAVE_BLIND
			:: lk == me -> works[me] = !late[me]; knew[me] = 1; mine = lk_tok; goto work
#endif
			:: else ->
				ticket[me] = 0;
				for (k : 1 .. N) { if :: next[k] == me -> next[k] = 0 :: else fi }
				if :: tail == me -> retail() :: else fi;
				goto over
			fi
		}
	:: atomic { faults > 0 -> faults--; dead[me] = 1; goto over }
	od;

work:	do
	:: atomic { works[me] && lk == me ->                    /* a guarded write */
#ifdef TOKEN_MOD
		assert(lk_mod == mine)                          /* H4 */
#else
		assert(lk_tok == mine)                          /* H4 */
#endif
		}; break
	:: atomic { works[me] && lk != me -> assert(false) }    /* H1: it lost it and works */
	:: atomic { !works[me] && lk != me -> goto over }       /* its time was over */
	:: atomic { !works[me] && lk == me -> break }           /* its time was over, and yet it has it: gives it back */
	:: atomic { faults > 0 -> faults--; dead[me] = 1; works[me] = 0; goto over }
	od;
	/* confirms, or is over soon */
	if
#ifdef CONFIRM_BLIND
	:: atomic { true -> rev++; lk = me; lk_mod = rev; lk_leased = 0; lk_tok = mine }
#else
	:: atomic { true -> if :: lk == me && lk_tok == mine -> rev++; lk_mod = rev; lk_leased = 0 :: else fi }
#endif
	:: skip
	fi;
	/* a guarded write after it */
	atomic { if
#ifdef TOKEN_MOD
		:: works[me] && lk == me -> assert(lk_mod == mine)      /* H4 */
#endif
		:: else
		fi };
	if
	:: atomic { faults > 0 -> faults--; dead[me] = 1; works[me] = 0; goto over }
	:: skip
	fi;

release:
	atomic { works[me] = 0; then = next[me] };              /* it reads who is next, and with which lease */
	atomic {
		if
		:: lk != me || lk_tok != mine -> goto over      /* it is not its own any more */
		:: else
		fi;
		if
		:: then == 0 ->
#ifndef RELEASE_BLIND
			if :: next[me] -> goto release :: else fi;
#endif
			if :: tail == me -> tail = 0 :: else fi;
			free(); next[me] = 0; ticket[me] = 0
		:: else ->
			if
#ifdef GRANT_BLIND
			:: lease[then] ->                       /* etcd refuses a lease that is gone */
#else
			:: lease[then] && ticket[then] && next[me] == then ->
#endif
				rev++; lk = then; lk_mod = rev;
#ifdef NO_LEASE
				lk_leased = 0;
#else
				lk_leased = 1;
#endif
				begin(then); ticket[me] = 0; ticket[then] = 0; next[me] = 0
			:: else -> goto release
			fi
		fi
	};
over:	skip
}

/* Leases end after their client, or in its life when it is cut off: a holder that did not confirm has stopped by then. */
proctype Lease(byte x) {
	byte k, k2;
end:	do
	:: atomic { lease[x] && dead[x] -> expire(x) } -> break
#ifdef NO_LOCAL
	:: atomic { faults > 0 && lease[x] && !dead[x] -> faults--; expire(x); late[x] = 1 } -> break
#else
	:: atomic { faults > 0 && lease[x] && !dead[x] -> faults--; late[x] = 1;
		if :: lk == x && lk_leased -> works[x] = 0 :: else fi };
		atomic { expire(x) } -> break
#endif
	od
}

/* The unlocker removes what a dead holder confirmed, or took without waiting, when its time is over. */
proctype Sweeper() {
	byte k, k2;
end:	do
	:: atomic { lk && dead[lk] && !lk_leased -> assert(knew[lk]);   /* H6 */
		if :: tail == lk -> retail() :: else fi; free() }
	od
}

init {
	byte k;
	atomic {
		for (k : 1 .. N) { lease[k] = 1 }
		for (k : 1 .. N) { run Client(k); run Lease(k) }
		run Sweeper()
	}
}
