/* route.pml - one lock of a segment that moves between two clusters and back. See
 * docs/adr/0023-routes.md.
 *
 * A route names the segment's home and counts its moves. While it also names the
 * cluster that the segment came from, a client first makes sure that the lock is
 * held there by the move: a claim, an ordinary record that nobody gives back.
 * Clients read the table whenever they like, so that any of them may be any number
 * of moves behind; a stranger knows of no table and goes on at cluster 0.
 *
 *   R1 one     the lock is never held in both clusters
 *   R2 order   tokens grow, across the clusters
 *   R3 comes   every client with a table gets the lock, or is told that tokens
 *              would fall: no end state is invalid
 *
 * Each of these breaks R1, and most also R2, so they are checked with NO_R2: NO_CLAIM (a client goes to the new home at once),
 * CLAIM_LOOK (it only looks whether the lock is free), CLAIM_ENDS (a claim goes
 * with the process that made it), CLAIM_OLD (a claim of an earlier move will do),
 * CLEAR_FIRST (the old claim at the new home is removed before the claim is made),
 * CLEAR_NEWER (the claim of a later move is removed, too), CLEAR_BLIND (the claim
 * is not compared when it is removed), SAME_MOVE (a move back has the number of
 * the move), FINISH_EARLY (a move is finished while a client has an older table),
 * FINISH_STRANGER (… while a stranger may come), FINISH_HELD (… while the lock is
 * held in the old cluster).
 * TOKENS_BLIND and FINISH_TOKENS (revisions are not compared) break R2; STALE_STAYS
 * (nobody removes the claim of an earlier move) breaks R3.
 */
#ifndef MOVES
#define MOVES 3
#endif
#ifndef NC
#define NC 2
#endif
#ifndef HOLDS
#define HOLDS 2
#endif
#ifndef BUMPS
#define BUMPS 1
#endif
#define FREE 0
#define HELD 1
#define CLAIM 2
#define HOME(m) ((m) & 1)
#ifdef SAME_MOVE
#define NUMBER(m) (((m) + 1) / 2)               /* there and back have one number */
#else
#define NUMBER(m) (m)
#endif

byte lk[2];                                     /* FREE, HELD or CLAIM */
byte claim[2];                                  /* of which move */
byte made[2];                                   /* C(uuid) of the claim */
byte rev[2];                                    /* of each etcd */
byte move;                                      /* the table: how many moves there were */
bool from;                                      /* … and whether it names the former home */
byte high;                                      /* ghost: the highest token */
byte has[NC];                                   /* ghost: the move in each client's table */
bool ended[NC];                                  /* ghost: the client has ended */
bool stranger = 1;                              /* ghost: it may still come */

inline take(site) {                             /* acquire: one transaction */
	rev[site]++; lk[site] = HELD;
	assert(lk[1 - site] != HELD);           /* R1 */
#ifndef NO_R2
	assert(rev[site] > high);               /* R2 */
#endif
	high = rev[site]
}

inline release(site) { rev[site]++; lk[site] = FREE }

inline unclaim(site) { rev[site]++; lk[site] = FREE; claim[site] = 0; made[site] = 0 }

inline read_table() { m = move; f = from; has[me] = move }

proctype Client(byte me) {
	byte m, token, seen, held, n = 0;
	bool f, mine = 0;
	d_step { read_table() };
again:
	do
	:: n == HOLDS -> break
	:: else ->
		if                              /* the table is read again now and then, or it is not */
		:: d_step { m != move || f != from -> read_table() }
		:: true
		fi;
#ifdef CLEAR_FIRST
		d_step { if :: lk[HOME(m)] == CLAIM && claim[HOME(m)] < NUMBER(m) -> unclaim(HOME(m)) :: else fi };
#endif
		/* claim */
		if
		:: !f -> token = 0
#ifndef NO_CLAIM
		:: f ->
			if
			:: d_step { lk[1 - HOME(m)] == FREE ->
				token = rev[1 - HOME(m)];
#ifndef CLAIM_LOOK
				rev[1 - HOME(m)]++; lk[1 - HOME(m)] = CLAIM; claim[1 - HOME(m)] = NUMBER(m);
				made[1 - HOME(m)] = rev[1 - HOME(m)]; token = made[1 - HOME(m)];
#ifdef CLAIM_ENDS
				mine = 1
#endif
#endif
			}
			:: d_step { lk[1 - HOME(m)] == CLAIM && claim[1 - HOME(m)] <= NUMBER(m) ->
#ifndef CLAIM_OLD
				if
				:: claim[1 - HOME(m)] < NUMBER(m) -> rev[1 - HOME(m)]++; claim[1 - HOME(m)] = NUMBER(m)
				:: else
				fi;
#endif
				token = made[1 - HOME(m)] }
			:: lk[1 - HOME(m)] == CLAIM && claim[1 - HOME(m)] > NUMBER(m) -> m != move; goto newer
			/* held: wait; the table may change meanwhile */
			:: d_step { lk[1 - HOME(m)] == HELD && m != move }; goto newer
			fi
#else
		:: f -> token = 0
#endif
		fi;
#ifndef TOKENS_BLIND
		if
		:: rev[HOME(m)] < token -> break /* tokens would fall: an error */
		:: else
		fi;
#endif
		token = 0;
		/* clear the claim of an earlier move at home */
		seen = (lk[HOME(m)] == CLAIM -> 1 + claim[HOME(m)] : 0);
		if
		:: seen == 0
#ifdef CLEAR_NEWER
		:: seen && seen - 1 != NUMBER(m) ->
#else
		:: seen && seen - 1 > NUMBER(m) -> m != move; goto newer
		:: seen && seen - 1 == NUMBER(m) -> assert(false) /* never claims its own home */
#ifdef STALE_STAYS
		:: seen && seen - 1 < NUMBER(m) -> m != move; goto newer
#else
		:: seen && seen - 1 < NUMBER(m) ->
#endif
#endif
			d_step {
				if
#ifdef CLEAR_BLIND
				:: lk[HOME(m)] == CLAIM -> unclaim(HOME(m))
#else
				:: lk[HOME(m)] == CLAIM && claim[HOME(m)] == seen - 1 -> unclaim(HOME(m))
#endif
				:: else
				fi };
		fi;
		seen = 0;
		/* acquire, or wait; then the table may change, or somebody claims the lock */
		if
		:: d_step { lk[HOME(m)] == FREE -> take(HOME(m)); held = HOME(m) };
			if :: d_step { m != move || f != from -> read_table() } :: true fi; /* while it holds */
			d_step { release(held); n++; held = 0 }
		:: d_step { m != move && lk[HOME(m)] != FREE }; goto newer
		:: lk[HOME(m)] == CLAIM /* look again */
		fi
	od;
	goto over;
newer:	skip;
	d_step { token = 0; seen = 0; read_table() };
	goto again;
over:	skip;
#ifdef CLAIM_ENDS
	d_step { if :: mine && lk[0] == CLAIM -> unclaim(0) :: else fi };
	d_step { if :: mine && lk[1] == CLAIM -> unclaim(1) :: else fi };
#endif
	ended[me] = 1
}

proctype Stranger() {                           /* knows cluster 0 */
end:	do
	:: d_step { stranger && lk[0] == FREE -> take(0) };
		d_step { release(0); stranger = 0 }; break
	:: stranger = 0; break                  /* it was stopped */
	od
}

proctype Late() {                               /* a claim of the first move that nobody waits for, and nobody stops */
end:	d_step { move > 0 && lk[0] == FREE -> rev[0]++; lk[0] = CLAIM; claim[0] = NUMBER(1); made[0] = rev[0] }
}

#ifdef FINISH_EARLY
#define ALL_KNOW true
#else
#define ALL_KNOW ((ended[0] || has[0] == move) && (ended[NC - 1] || has[NC - 1] == move))
#endif
#ifdef FINISH_STRANGER
#define NO_STRANGER true
#else
#define NO_STRANGER (!stranger)
#endif
#ifdef FINISH_HELD
#define DRAINED true
#else
#define DRAINED (lk[1 - HOME(move)] != HELD)
#endif
#ifdef FINISH_TOKENS
#define TOKENS true
#else
#define TOKENS (rev[HOME(move)] >= rev[1 - HOME(move)])
#endif

inline finish() {                               /* an operator, who knows that no client has an older table */
	d_step { (ALL_KNOW && NO_STRANGER && DRAINED && TOKENS) -> from = 0 };
	/* it may be killed between any two of these, and begins again or does not */
	if
	:: d_step { if :: lk[HOME(move)] == CLAIM && claim[HOME(move)] < NUMBER(move) -> unclaim(HOME(move)) :: else fi }
	:: true
	fi;
	if
	:: d_step { if :: lk[1 - HOME(move)] == CLAIM && claim[1 - HOME(move)] <= NUMBER(move) -> unclaim(1 - HOME(move)) :: else fi }
	:: true
	fi
}

proctype Mover() {
	do
	:: d_step { move < MOVES -> move++; from = 1 };
		if
		:: finish()
		:: true
		fi
	:: break
	od
}

proctype Others() {                             /* other locks: the revisions of the two are what they are */
	byte n = 0;
	do
	:: d_step { n < BUMPS -> rev[1] = rev[1] + 3; n++ }
	:: d_step { n < BUMPS -> rev[0] = rev[0] + 3; n++ }
	:: break
	od
}

init {
	atomic {
		byte i = 0;
		do
		:: i < NC -> run Client(i); i++
		:: else -> break
		od;
		run Stranger(); run Late(); run Mover(); run Others()
	}
}
