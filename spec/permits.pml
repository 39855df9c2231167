/* permits.pml - locks that several can hold: permits of a semaphore, readers and a writer.
 *
 * A share is a record of its own, numbered from 1; the writer is the record of the lock. To take a share, a client reads the holders, at a
 * revision, and claims the lowest free number if there is room. The claim is refused when a share was created after that revision.
 * Releases only make room, so what was counted is never too little. Without room it queues; the first in the queue follows the
 * ends of holds, and its claim deletes its own ticket. How waiters learn that they are the first is in queue.pml, and so is why the tail
 * is put back as it is.
 *
 *   P1 limit    whoever takes permits finds no more of them out, its own included, than its own limit
 *   P2 rw       no share beside a writer, no writer beside anybody
 *   P3 cancel   after a committed cancel no late claim of that attempt commits
 *   P4 fifo     nobody is served while an older ticket is there; a newcomer only when nobody queues, or the tail was lost
 *   P5 once     an attempt never has two records, and overwrites nobody's
 *   live (ltl)  a live waiter is served or learns that it lost its place; with STREAM nor do those who come again and again, without
 *               queueing, keep a writer or many permits from it forever
 *   drain (ltl) no record and no ticket stays forever
 *
 * Clients by MIX: 1 a semaphore of 2 with a heavy weight; 2 two readers and a writer; 3 limits of 2 and 3, and a writer; 4 two
 * readers. Variants that must FAIL: NO_RANGE_GUARD (P1), STALE_CLAIM (a claim without room by the last count, P1), NO_LOCK_GUARD
 * (P2), NO_SLOT_GUARD (P5), NO_TICKET_GUARD (P4), NO_TAIL_GUARD (P4), NO_CANCEL_GUARD (P3), JOIN_IN_DOUBT (whoever does not know what
 * became of its claim queues with the same uuid, P5), NO_SWEEPER (drain), DROP_TAIL (whoever leaves as the tail deletes it, P4), NO_HEAL
 * (nobody puts a missing tail back, live with STREAM). For permits and the writer NO_SLOT_GUARD passes: the range says as much.
 *
 * STREAM: client 1 never queues, and takes a share again whenever it can.
 */
#ifndef FAULTS
#define FAULTS 2        /* crashes, lost leases, late commits, removals, in all */
#endif
#ifndef MIX
#define MIX 1
#endif
#if MIX == 4
#define N 2
#else
#define N 3
#endif
#define NID (N+1)       /* clients, and shares, are numbered from 1 */

#define SEM 0
#define RD 1
#define WR 2
#if MIX == 1
#define KIND(c) SEM
#define WEIGHT(c) (c == 2 -> 2 : 1)
#define LIMIT(c) 2
#elif MIX == 2
#define KIND(c) (c == 3 -> WR : RD)
#define WEIGHT(c) 1
#define LIMIT(c) 9
#elif MIX == 3
#define KIND(c) (c == 3 -> WR : SEM)
#define WEIGHT(c) (c == 2 -> 2 : 1)
#define LIMIT(c) (c == 2 -> 3 : 2)
#else
#define KIND(c) RD
#define WEIGHT(c) 1
#define LIMIT(c) 9
#endif

byte faults = FAULTS;
byte rev = 0;
byte writer = 0;                /* who holds the lock's own record; 0: nobody */
byte share[NID];                /* who holds the share */
byte tail = 0;
byte wr[NID];                   /* create revision of the ticket, 0: absent */
bool leased[NID], dead[NID], waiting[NID], cancelled[NID];
bool taillost = 0;              /* ghost: the newest waiter lost ticket and tail while older ones waited, and nobody put a tail back yet */

/* What a client counted: who was the writer, who had the shares, and which shares were created since (that is what the compare of the
 * range tells, of those that are there). */
typedef row { byte has[NID] };
row seen[NID];
byte seenw[NID];
byte fresh[NID];

/* A claim that is on its way, and may be committed late or never. */
bool la[NID], la_q[NID], la_w[NID]; byte la_k[NID], la_fresh[NID];

#define bit(s) (1 << (s))
#if N == 2
#define PRESENT ((share[1] != 0) * 2 + (share[2] != 0) * 4)
#define SUM(a) ((a[1] -> WEIGHT(a[1]) : 0) + (a[2] -> WEIGHT(a[2]) : 0))
#define NOSHARE (!share[1] && !share[2])
#define HAS(c) (writer == c || share[1] == c || share[2] == c)
#define OLDER(c) ((wr[1] && wr[1] < wr[c]) || (wr[2] && wr[2] < wr[c]))
#define NOTICKET (!wr[1] && !wr[2])
#define LOWEST(a) (!a[1] -> 1 : 2)
#else
#define PRESENT ((share[1] != 0) * 2 + (share[2] != 0) * 4 + (share[3] != 0) * 8)
#define SUM(a) ((a[1] -> WEIGHT(a[1]) : 0) + (a[2] -> WEIGHT(a[2]) : 0) + (a[3] -> WEIGHT(a[3]) : 0))
#define NOSHARE (!share[1] && !share[2] && !share[3])
#define HAS(c) (writer == c || share[1] == c || share[2] == c || share[3] == c)
#define OLDER(c) ((wr[1] && wr[1] < wr[c]) || (wr[2] && wr[2] < wr[c]) || (wr[3] && wr[3] < wr[c]))
#define NOTICKET (!wr[1] && !wr[2] && !wr[3])
#define LOWEST(a) (!a[1] -> 1 : (!a[2] -> 2 : 3))
#endif
#define ROOM(c, w, a) (!(w) && (KIND(c) == RD || (KIND(c) == WR && SUM(a) == 0) || (KIND(c) == SEM && SUM(a) + WEIGHT(c) <= LIMIT(c))))

#ifdef NO_CANCEL_GUARD
#define NOTCANCELLED(c) true
#else
#define NOTCANCELLED(c) !cancelled[c]
#endif
#ifdef NO_RANGE_GUARD
#define UNCHANGED(c, f) true
#else
#define UNCHANGED(c, f) (KIND(c) == RD || !((f) & PRESENT))
#endif
#ifdef NO_LOCK_GUARD
#define NOWRITER(c) (KIND(c) != WR || !writer)
#else
#define NOWRITER(c) !writer
#endif
#ifdef NO_SLOT_GUARD
#define VACANT(c, k) true
#else
#define VACANT(c, k) (KIND(c) == WR || !share[k])
#endif
#ifdef NO_TICKET_GUARD
#define TURN(c, q) (q || !tail)
#elif defined(NO_TAIL_GUARD)
#define TURN(c, q) (!q || wr[c])
#else
#define TURN(c, q) ((q && wr[c]) || (!q && !tail))
#endif

/* If C(uuid of the lock)=0, C(uuid of the share)=0, C(every share) < R+1, not cancelled, C(tail)=0 or C(ticket)=W
 * Then put the record, delete ticket and own tail */
inline t_claim(c_, k_, f_, q_, ok_) {
	ok_ = 0;
	if
	:: NOWRITER(c_) && VACANT(c_, k_) && UNCHANGED(c_, f_) && NOTCANCELLED(c_) && TURN(c_, q_) ->
		assert(!cancelled[c_]);                                         /* P3 */
		assert(!HAS(c_));                                               /* P5 */
		if
		:: KIND(c_) == WR -> assert(!writer && NOSHARE); writer = c_    /* P2 */
		:: else ->
			assert(!writer);                                        /* P2 */
			assert(!share[k_]);                                     /* P5 */
			share[k_] = c_;
			assert(KIND(c_) == RD || SUM(share) <= LIMIT(c_));      /* P1 */
			fresh[1] = fresh[1] | bit(k_); la_fresh[1] = la_fresh[1] | bit(k_);
			fresh[2] = fresh[2] | bit(k_); la_fresh[2] = la_fresh[2] | bit(k_);
#if N > 2
			fresh[3] = fresh[3] | bit(k_); la_fresh[3] = la_fresh[3] | bit(k_)
#endif
		fi;
		assert((q_ -> !OLDER(c_) && wr[c_] : NOTICKET || taillost));    /* P4 */
		t_leave(c_);
		ok_ = 1
	:: else -> skip
	fi
}

/* The client that takes its turn is the first: as the tail it is the only one. */
inline t_leave(c_) {
	wr[c_] = 0;
	if :: tail == c_ -> tail = 0 :: else -> skip fi
}

/* The newest ticket but c's own. */
inline newest(c_, n_) {
	n_ = 0;
	if :: c_ != 1 && wr[1] -> n_ = 1 :: else -> skip fi;
	if :: c_ != 2 && wr[2] && (!n_ || wr[2] > wr[n_]) -> n_ = 2 :: else -> skip fi;
#if N > 2
	if :: c_ != 3 && wr[3] && (!n_ || wr[3] > wr[n_]) -> n_ = 3 :: else -> skip fi;
#endif
}

/* give up: If V(tail)=mine, C(ticket before)=as read Then delete the ticket, put the tail with that ticket's lease
 * where there is no ticket before: If V(tail)=mine Then delete ticket and tail; where the tail is another's: delete the ticket */
inline t_quit(c_, n_, ok_) {
	ok_ = 1;
	if
	:: tail != c_ -> wr[c_] = 0
#ifdef DROP_TAIL
	:: tail == c_ -> wr[c_] = 0; tail = 0;
#ifdef NO_HEAL
		taillost = taillost || !NOTICKET        /* as the rule was: P4 left this out */
#endif
#else
	:: tail == c_ && (n_ == 0 || (wr[n_] && leased[n_])) -> wr[c_] = 0; tail = n_
#endif
	:: else -> ok_ = 0
	fi
}

/* put the tail back: If C(tail)=0, C(newest ticket)=as read Then put the tail with that ticket's lease */
inline t_heal(n_) {
	if
	:: n_ && !tail && wr[n_] && leased[n_] -> tail = n_; taillost = 0
	:: else -> skip
	fi
}

inline t_expire(c_) {   /* the lease ends: ticket and tail go */
	wr[c_] = 0; leased[c_] = 0;
	if :: tail == c_ -> tail = 0; taillost = taillost || !NOTICKET :: else -> skip fi
}

inline unshare(s_) {
	share[s_] = 0;
	fresh[1] = fresh[1] & ~bit(s_); la_fresh[1] = la_fresh[1] & ~bit(s_);
	fresh[2] = fresh[2] & ~bit(s_); la_fresh[2] = la_fresh[2] & ~bit(s_);
#if N > 2
	fresh[3] = fresh[3] & ~bit(s_); la_fresh[3] = la_fresh[3] & ~bit(s_);
#endif
}

/* If V(uuid)=mine Then delete the record */
inline t_remove(c_) {
	if :: writer == c_ -> writer = 0 :: else -> skip fi;
	if :: share[1] == c_ -> unshare(1) :: else -> skip fi;
	if :: share[2] == c_ -> unshare(2) :: else -> skip fi;
#if N > 2
	if :: share[3] == c_ -> unshare(3) :: else -> skip fi;
#endif
}

inline count(c_) {
	seenw[c_] = writer;
	seen[c_].has[1] = share[1]; seen[c_].has[2] = share[2];
#if N > 2
	seen[c_].has[3] = share[3];
#endif
	fresh[c_] = 0
}

/* An event tells that a hold which was counted is over. */
inline ended(c_) {
	if :: seenw[c_] != writer -> seenw[c_] = 0 :: else -> skip fi;
	if :: seen[c_].has[1] != share[1] -> seen[c_].has[1] = 0 :: else -> skip fi;
	if :: seen[c_].has[2] != share[2] -> seen[c_].has[2] = 0 :: else -> skip fi;
#if N > 2
	if :: seen[c_].has[3] != share[3] -> seen[c_].has[3] = 0 :: else -> skip fi;
#endif
}
#if N == 2
#define NEWS(c) ((seenw[c] && seenw[c] != writer) || (seen[c].has[1] && seen[c].has[1] != share[1]) || (seen[c].has[2] && seen[c].has[2] != share[2]))
#else
#define NEWS(c) ((seenw[c] && seenw[c] != writer) || (seen[c].has[1] && seen[c].has[1] != share[1]) || (seen[c].has[2] && seen[c].has[2] != share[2]) || (seen[c].has[3] && seen[c].has[3] != share[3]))
#endif

proctype Client(byte c) {
	byte k = 1, tries = 0, n = 0;
	bool ok = 0, doubt = 0;
	d_step { leased[c] = 1; waiting[c] = 1; fresh[c] = PRESENT };    /* at first it guesses that nobody holds the lock */

try:	skip;
	if
	:: d_step { t_claim(c, k, fresh[c], 0, ok); tries++; if :: !ok -> count(c) :: else -> skip fi }
	:: d_step { faults > 0 -> faults--; t_claim(c, k, fresh[c], 0, ok); dead[c] = 1 }; goto gone
	:: d_step { faults > 0 && !la[c] -> faults--; la[c] = 1; la_q[c] = 0; la_k[c] = k; la_fresh[c] = fresh[c];
		doubt = 1; ok = 0; t_claim(c, k, fresh[c], 0, ok); if :: !ok -> count(c) :: else -> skip fi }   /* sent twice, answered once */
	fi;
	if
	:: ok -> goto held
#ifndef JOIN_IN_DOUBT
	:: !ok && doubt -> goto cancel          /* begins anew with another uuid */
#endif
	:: else -> skip
	fi;
	if
	:: !tail && tries < 2 && ROOM(c, seenw[c], seen[c].has) -> k = LOWEST(seen[c].has); goto try
#ifdef STALE_CLAIM
	:: !tail && tries < 2 -> k = LOWEST(seen[c].has); goto try
#endif
	:: else -> skip
	fi;

	d_step { if :: leased[c] && !HAS(c) -> rev++; wr[c] = rev; tail = c :: else -> skip fi };
	if :: HAS(c) -> goto held :: else -> skip fi;

wait:	skip;
	if
	:: !wr[c] -> goto lost
	:: wr[c] && !OLDER(c) -> goto look
#ifndef NO_HEAL
	:: wr[c] && !tail -> goto heal
#endif
	:: d_step { faults > 0 -> faults--; dead[c] = 1 }; goto gone
	:: d_step { faults > 0 -> faults-- }; goto quit
	fi;

heal:	skip;           /* nothing keeps newcomers behind this waiter */
	d_step { newest(0, n) };
	d_step { t_heal(n); n = 0 };
	goto wait;

look:	skip;
	d_step { count(c) };    /* its watches are open */
head:	skip;
	if
	:: !wr[c] && !HAS(c) -> goto lost
	:: HAS(c) -> goto held                  /* a late claim got through */
	:: wr[c] && ROOM(c, seenw[c], seen[c].has) -> goto take
#ifdef NO_HEAL
	:: wr[c] && !ROOM(c, seenw[c], seen[c].has) && NEWS(c) -> d_step { ended(c) }; goto head
#else
	:: wr[c] && !ROOM(c, seenw[c], seen[c].has) && NEWS(c) && tail -> d_step { ended(c) }; goto head
	:: wr[c] && !tail -> goto heal          /* however many events there are, it looks now and then */
#endif
	:: d_step { faults > 0 -> faults--; dead[c] = 1 }; goto gone
	:: d_step { faults > 0 -> faults-- }; goto quit
	fi;

take:	skip;
	k = LOWEST(seen[c].has);
	if
	:: d_step { t_claim(c, k, fresh[c], 1, ok); if :: !ok -> count(c) :: else -> skip fi }
	:: d_step { faults > 0 && !la[c] -> faults--; la[c] = 1; la_q[c] = 1; la_k[c] = k; la_fresh[c] = fresh[c]; doubt = 1; ok = 0 }
	:: d_step { faults > 0 -> faults--; t_claim(c, k, fresh[c], 1, ok); doubt = 1 }; goto quit
	fi;
	if
	:: ok -> goto held
#ifndef NO_HEAL
	:: !ok && wr[c] && !tail -> goto heal   /* somebody passed the queue */
#endif
	:: else -> goto head
	fi;

held:	skip;
	waiting[c] = 0;
	if
	:: d_step { HAS(c) -> t_remove(c) }
	:: !HAS(c) -> skip                      /* swept */
	:: d_step { faults > 0 -> faults--; dead[c] = 1 }; goto gone
	fi;
	if :: doubt -> goto cancel :: else -> goto gone fi;

quit:	skip;           /* leaves the queue, cancels where an answer was lost */
	d_step { newest(c, n) };
	d_step { t_quit(c, n, ok); n = 0; if :: ok && !doubt -> waiting[c] = 0 :: else -> skip fi };
	if :: !ok -> goto quit :: ok && !doubt -> goto gone :: else -> skip fi;
cancel:	skip;
	d_step { cancelled[c] = 1; t_expire(c); waiting[c] = 0; ok = HAS(c) };
	if :: ok -> d_step { t_remove(c) } :: else -> skip fi;
	goto gone;
lost:	skip;
	d_step { newest(c, n) };
	d_step { t_quit(c, n, ok); n = 0 };
	if :: !ok -> goto lost :: else -> skip fi;
	d_step { waiting[c] = 0; t_expire(c); if :: doubt -> ok = 1 :: else -> ok = 0 fi };
	if :: ok -> goto cancel :: else -> skip fi;
gone:	skip
}

#ifdef STREAM
/* Takes a share, gives it back, and comes again. */
proctype Stream(byte c) {
	byte k = 1;
	bool ok = 0;
end:	do
	:: d_step { !tail && ROOM(c, writer, share) -> k = LOWEST(share); t_claim(c, k, 0, 0, ok) };
		d_step { t_remove(c) }
	od
}
#endif

proctype Lease() {
end:	do
	:: d_step { dead[1] && leased[1] -> t_expire(1) }
	:: d_step { dead[2] && leased[2] -> t_expire(2) }
#if N > 2
	:: d_step { dead[3] && leased[3] -> t_expire(3) }
#endif
	:: d_step { faults > 0 && wr[1] && !dead[1] -> faults--; t_expire(1) }
	:: d_step { faults > 0 && wr[2] && !dead[2] -> faults--; t_expire(2) }
	od
}

proctype Late(byte c) {
	bool ok = 0;
end:	do
	:: d_step { la[c] -> t_claim(c, la_k[c], la_fresh[c], la_q[c], ok); la[c] = 0; ok = 0 }
	:: d_step { la[c] -> la[c] = 0 }
	od
}

proctype Sweeper() {
	byte s;
end:	do
#ifndef NO_SWEEPER
	:: d_step { writer && dead[writer] -> writer = 0 }
	:: d_step { share[1] && dead[share[1]] -> unshare(1) }
	:: d_step { share[2] && dead[share[2]] -> unshare(2) }
#if N > 2
	:: d_step { share[3] && dead[share[3]] -> unshare(3) }
#endif
	:: d_step { share[1] && faults > 0 -> faults--; unshare(1) }
	:: d_step { writer && faults > 0 -> faults--; writer = 0 }
	:: d_step { wr[2] && faults > 0 -> faults--; wr[2] = 0 }        /* a ticket is overdue; a tail stays behind */
#endif
	:: false
	od
}

#ifdef LTL
bool beat = 0;
proctype Beat() {
end:	do
	:: beat = !beat
	od
}
#endif

init {
	byte i;
	atomic {
#ifdef LTL
		run Beat();
#endif
#ifdef STREAM
		run Stream(1);
		for (i : 2 .. N) { run Client(i) }
#else
		for (i : 1 .. N) { run Client(i) }
#endif
		for (i : 1 .. N) { run Late(i) }
		run Lease();
		run Sweeper();
		i = 0
	}
}

#ifdef LTL
#define live1 (waiting[1] && !dead[1])
#define live2 (waiting[2] && !dead[2])
#if N == 2
ltl live { []<> !live1 && []<> !live2 }
#else
#define live3 (waiting[3] && !dead[3])
ltl live { []<> !live1 && []<> !live2 && []<> !live3 }
#endif
ltl drain { <>[] (NOTICKET && NOSHARE && !writer && !tail) }
#endif
