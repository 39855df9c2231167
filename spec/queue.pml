/* queue.pml - the fair queue before one lock: tickets, a leased tail, and a mark on the ticket of a holder.
 *
 * One transaction tries or enqueues: it takes a free lock that has no tail; otherwise it puts a ticket, swaps the tail and learns
 * from the old tail who stands before it. A waiter watches that one ticket. When it goes after it bore the holder's mark, the
 * lock was handed over: acquire. When it goes without the mark, its owner died or gave up in mid-queue: scan for the newest older
 * ticket. Without anybody before it the waiter is the head and watches the record.
 *
 * The tail is all that keeps newcomers behind the queue. A waiter that leaves as the tail puts the tail back to the ticket before it, in
 * the transaction that deletes its own ticket. Where nobody could do that, because the newest waiter died, a waiter that finds no tail
 * puts one back.
 *
 *   Q1 fifo     a queueing client takes the lock only when no older waiter's ticket is there
 *   Q2 mutex    only when no record is there
 *   Q3 cancel   after a committed cancel no late acquire of that attempt commits
 *   Q4 barge    a newcomer passes the queue only while there is no tail because the newest waiter lost its lease
 *   live (ltl)  a live waiter gets the lock or learns that it lost its place; no run ends with a waiter asleep; with POLL nor does a
 *               newcomer that tries again and again, without queueing, keep the lock from it forever
 *   drain (ltl) no ticket, tail or record of a dead or absent client stays
 *
 * Variants that must FAIL: NO_MARK (a vanished predecessor is taken for a hand-over), NO_TICKET_GUARD, NO_TAIL_GUARD, NO_SCAN (a
 * waiter without predecessor believes that it is the head), NO_LEASE, NO_SWEEPER, NO_CANCEL_GUARD, EDGE (wait for the record's
 * deletion without looking first), LATE_ENQ without OWN_LEASE, DROP_TAIL (whoever leaves as the tail deletes it, Q4), NO_HEAL (nobody
 * puts a missing tail back, live with POLL), QUIT_BLIND and HEAL_UNSEEN (the tail is put back to a ticket that may be gone, drain),
 * HEAL_BLIND (the tail is put back although there is one, Q1)
 *
 * MIXED: client 1 is a plain client, as the listing of docs/protocol/queue.md has it: it deletes its ticket when it takes its turn, and when the
 * ticket before it goes it looks once. The owner of that ticket holds the lock: it was the first, and so is client 1 now. Otherwise scan.
 *
 * HELD: a client that knows nothing of the queue has the lock at first. POLL: it takes the lock again whenever it can.
 */
#ifndef N
#define N 3
#endif
#ifndef FAULTS
#define FAULTS 2        /* crashes, lost leases, lost answers, late commits, in all */
#endif
#define OTHER (N+1)     /* who does not queue */
#define NID (N+2)

byte faults = FAULTS;
byte rev = 0;
byte lk = 0;                    /* who holds; 0: nobody */
#ifdef EDGE
byte lkdel = 0;                 /* how many times a record was removed */
#define REMOVED lkdel++
#else
#define REMOVED skip
#endif
byte tail = 0;
byte wr[NID];                   /* create revision of the ticket, 0: absent */
bool mark[NID];                 /* the ticket bears the holder's mark; stays readable after the deletion, as watch events do */
bool leased[NID];               /* the attempt's lease lives */
bool dead[NID], waiting[NID], cancelled[NID], queued[NID];
bool taillost = 0;              /* ghost: the newest waiter lost ticket and tail while older ones waited, and nobody put a tail back yet */
bool la_p[NID]; byte la_pred[NID];      /* acquire with open outcome */
bool le_p[NID];                 /* try-or-enqueue with open outcome */

#ifdef NO_CANCEL_GUARD
#define NOTCANCELLED(c) true
#else
#define NOTCANCELLED(c) !cancelled[c]
#endif
#define older(d,c) (d != c && wr[d] && !mark[d] && wr[d] < wr[c])
#if N == 4
#define FIRST(c) (!older(1,c) && !older(2,c) && !older(3,c) && !older(4,c))
#define NOWAITER (!(wr[1] && !mark[1]) && !(wr[2] && !mark[2]) && !(wr[3] && !mark[3]) && !(wr[4] && !mark[4]))
#define EMPTY (!wr[1] && !wr[2] && !wr[3] && !wr[4] && !tail)
#elif N == 2
#define FIRST(c) (!older(1,c) && !older(2,c))
#define NOWAITER (!(wr[1] && !mark[1]) && !(wr[2] && !mark[2]))
#define EMPTY (!wr[1] && !wr[2] && !tail)
#else
#define FIRST(c) (!older(1,c) && !older(2,c) && !older(3,c))
#define NOWAITER (!(wr[1] && !mark[1]) && !(wr[2] && !mark[2]) && !(wr[3] && !mark[3]))
#define EMPTY (!wr[1] && !wr[2] && !wr[3] && !tail)
#endif

/* If C(uuid)=0, C(tail)=0, not cancelled Then put record Else put ticket and tail with the lease */
inline t_enqueue(c_, p_) {
	p_ = 0;
	if
#ifdef NO_TAIL_GUARD
	:: !lk && NOTCANCELLED(c_) && !wr[c_] ->
#else
	:: !lk && !tail && NOTCANCELLED(c_) && !wr[c_] ->
#endif
		assert(!cancelled[c_]);                                 /* Q3 */
		assert(NOWAITER || taillost);                           /* Q4 */
		lk = c_; mark[c_] = 0
	:: else ->
		if
		:: lk != c_ && !wr[c_] && leased[c_] -> rev++; wr[c_] = rev; mark[c_] = 0; queued[c_] = 1; p_ = tail; tail = c_
		:: else -> skip
		fi
	fi
}

/* If C(uuid)=0, C(ticket)=W, C(pred)=0, not cancelled Then put record, mark the ticket */
inline t_acquire(c_, p_) {
	if
#ifdef NO_TICKET_GUARD
	:: !lk && (p_ == 0 || !wr[p_]) ->
#else
	:: !lk && wr[c_] && (p_ == 0 || !wr[p_]) ->
#endif
		assert(!cancelled[c_]);                                 /* Q3 */
		assert(wr[c_] && FIRST(c_));                            /* Q1 */
#ifdef MIXED
		lk = c_;
		if
		:: c_ == 1 -> wr[c_] = 0; if :: tail == c_ -> tail = 0; taillost = taillost || !NOWAITER :: else -> skip fi
		:: else -> mark[c_] = 1
		fi
#else
		lk = c_; mark[c_] = 1
#endif
	:: else -> skip
	fi
}

/* If V(uuid)=mine Then delete record, ticket; nested If V(tail)=mine Then delete tail */
inline t_release(c_) {
	if :: lk == c_ -> lk = 0; REMOVED; wr[c_] = 0; if :: tail == c_ -> tail = 0 :: else -> skip fi
	:: else -> skip
	fi
}

/* The newest ticket but c's own. */
inline newest(c_, n_, i_) {
	n_ = 0; i_ = 1;
	do
	:: i_ <= N ->
		if :: i_ != c_ && wr[i_] && (!n_ || wr[i_] > wr[n_]) -> n_ = i_ :: else -> skip fi;
		i_++
	:: else -> break
	od;
	i_ = 0
}

/* leave: If V(tail)=mine, C(ticket before)=as read Then delete the ticket, put the tail with that ticket's lease
 * where there is no ticket before: If V(tail)=mine Then delete ticket and tail; where the tail is another's: delete the ticket */
inline t_leave(c_, n_, ok_) {
	ok_ = 1;
	if
	:: tail != c_ -> wr[c_] = 0
#ifdef DROP_TAIL
	:: tail == c_ -> wr[c_] = 0; tail = 0;
#ifdef NO_HEAL
		taillost = taillost || !NOWAITER        /* as the rule was: Q4 left this out */
#endif
#elif defined(QUIT_BLIND)
	:: tail == c_ && (n_ == 0 || leased[n_]) -> wr[c_] = 0; tail = n_
#else
	:: tail == c_ && (n_ == 0 || (wr[n_] && leased[n_])) -> wr[c_] = 0; tail = n_
#endif
	:: else -> ok_ = 0
	fi
}

/* put the tail back: If C(tail)=0, C(newest ticket)=as read Then put the tail with that ticket's lease */
inline t_heal(n_) {
	if
#ifdef HEAL_BLIND
	:: n_ && wr[n_] && leased[n_] ->
#elif defined(HEAL_UNSEEN)
	:: n_ && !tail && leased[n_] ->
#else
	:: n_ && !tail && wr[n_] && leased[n_] ->
#endif
		tail = n_; taillost = 0
	:: else -> skip
	fi
}

/* cancel: record if mine, ticket, mark the attempt; the tail stays on the lease, which is revoked after a lost answer */
inline t_cancel(c_) {
	if :: lk == c_ -> lk = 0; REMOVED :: else -> skip fi;
	wr[c_] = 0;
	cancelled[c_] = 1;
	taillost = taillost || (tail == c_ && !NOWAITER);
#ifndef LATE_ENQ
	if :: tail == c_ -> tail = 0 :: else -> skip fi;
	leased[c_] = 0
#else
#ifdef OWN_LEASE
	if :: tail == c_ -> tail = 0 :: else -> skip fi;
	leased[c_] = 0
#else
	skip
#endif
#endif
}

inline t_expire(d_) {   /* the lease ends: ticket and tail go */
	wr[d_] = 0; leased[d_] = 0;
	if :: tail == d_ -> tail = 0; taillost = taillost || !NOWAITER :: else -> skip fi
}

proctype Client(byte c) {
	byte pred = 0, d = 0;
	bool ok = 0, doubt = 0;
#ifdef EDGE
	byte seen = 0;
#endif
	d_step { leased[c] = 1; waiting[c] = 1 };
	if
	:: d_step { t_enqueue(c, pred) };
		if :: lk == c -> goto held :: else -> skip fi
	:: d_step { faults > 0 -> faults--; dead[c] = 1; t_enqueue(c, pred) }; goto gone
#ifdef LATE_ENQ
	:: d_step { faults > 0 -> faults--; le_p[c] = 1; doubt = 1 }; goto quit
#endif
	:: d_step { faults > 0 -> faults--; t_enqueue(c, pred); doubt = 1 }; goto quit  /* answer lost, gives up */
	fi;
	if :: pred == 0 -> goto scan :: else -> skip fi;

wait:	skip;           /* behind pred; both tickets are watched */
	if
	:: !wr[c] -> goto lost
	:: wr[c] && !wr[pred] ->
#ifdef NO_MARK
		goto take
#else
#ifdef MIXED
		if
		:: c == 1 && lk == pred -> goto head
		:: c == 1 && lk != pred -> goto scan
		:: c != 1 && mark[pred] -> goto take
		:: c != 1 && !mark[pred] -> goto scan
		fi
#else
		if :: mark[pred] -> goto take :: else -> goto scan fi
#endif
#endif
#ifndef NO_HEAL
	:: wr[c] && !tail -> goto heal
#endif
	:: d_step { faults > 0 -> faults--; dead[c] = 1 }; goto gone
	:: d_step { faults > 0 -> faults-- }; goto quit
	fi;

scan:	skip;
	d_step {        /* the newest older ticket, holders' included */
		pred = 0; d = 1;
#ifndef NO_SCAN
		do
		:: d <= N ->
			if
			:: d != c && wr[d] && wr[d] < wr[c] && (!pred || wr[d] > wr[pred]) -> pred = d
			:: else -> skip
			fi;
			d++
		:: else -> break
		od;
#endif
		d = 0;
#ifdef EDGE
		seen = lkdel
#endif
	};
	if :: !wr[c] -> goto lost :: pred && wr[c] -> goto wait :: else -> goto head fi;

head:	skip;           /* nobody before me: the record is watched */
	if
	:: !wr[c] -> goto lost
#ifdef EDGE
	:: wr[c] && lkdel > seen -> goto take
#else
	:: wr[c] && !lk -> goto take
#endif
#ifndef NO_HEAL
	:: wr[c] && !tail -> goto heal
#endif
	:: d_step { faults > 0 -> faults--; dead[c] = 1 }; goto gone
	:: d_step { faults > 0 -> faults-- }; goto quit
	fi;

heal:	skip;           /* nothing keeps newcomers behind this waiter */
	d_step { newest(0, pred, d) };
	d_step { t_heal(pred); pred = 0 };
	goto scan;

take:	skip;
#ifdef MIXED
	if :: c == 1 -> pred = 0 :: else -> skip fi;
#endif
	if
	:: d_step { t_acquire(c, pred);
#ifdef EDGE
		seen = lkdel
#endif
		};
		if
		:: lk == c -> goto held
		:: lk != c && !wr[c] -> goto lost
#ifndef NO_HEAL
		:: lk != c && wr[c] && !tail -> pred = 0; goto heal      /* somebody passed the queue */
		:: lk != c && wr[c] && tail -> pred = 0; goto head
#else
		:: lk != c && wr[c] -> pred = 0; goto head
#endif
		fi
	:: d_step { faults > 0 -> faults--; t_acquire(c, pred); doubt = 1 }; goto quit
	:: d_step { faults > 0 && !la_p[c] -> faults--; la_p[c] = 1; la_pred[c] = pred; doubt = 1 }; goto quit
	fi;

held:	waiting[c] = 0;
	if
	:: d_step { lk == c -> t_release(c) }; goto gone
	:: lk != c -> d_step { wr[c] = 0; if :: tail == c -> tail = 0 :: else -> skip fi }; goto gone   /* swept: drops its ticket */
	:: d_step { faults > 0 -> faults--; dead[c] = 1 }; goto gone
	fi;

quit:	skip;           /* leaves the queue, cancels where an answer was lost */
	d_step { newest(c, pred, d) };
	d_step { t_leave(c, pred, ok); pred = 0; if :: ok && !doubt -> waiting[c] = 0 :: else -> skip fi };
	if :: !ok -> goto quit :: ok && !doubt -> goto gone :: else -> skip fi;
	d_step { t_cancel(c); waiting[c] = 0 };
	goto gone;
lost:	skip;           /* revokes its lease: a tail may still hang on it */
	d_step { newest(c, pred, d) };
	d_step { t_leave(c, pred, ok); pred = 0; if :: ok -> waiting[c] = 0; t_expire(c) :: else -> skip fi };
	if :: !ok -> goto lost :: else -> skip fi;
gone:	skip
}

proctype Lease() {
	byte d;
end:	do
#ifndef NO_LEASE
	:: d_step { dead[1] && leased[1] -> t_expire(1) }
	:: d_step { dead[2] && leased[2] -> t_expire(2) }
#if N > 2
	:: d_step { dead[3] && leased[3] -> t_expire(3) }
#endif
#if N > 3
	:: d_step { dead[4] && leased[4] -> t_expire(4) }
#endif
#endif
	:: d_step { faults > 0 && leased[1] && !dead[1] -> faults--; t_expire(1) }
	:: d_step { faults > 0 && leased[2] && !dead[2] -> faults--; t_expire(2) }
#if N > 2
	:: d_step { faults > 0 && leased[3] && !dead[3] -> faults--; t_expire(3) }
#endif
	od
}

proctype Late(byte c) {
	byte p = 0;
end:	do
	:: d_step { la_p[c] -> t_acquire(c, la_pred[c]); la_p[c] = 0 }
	:: d_step { la_p[c] -> la_p[c] = 0 }
	:: d_step { le_p[c] -> t_enqueue(c, p); le_p[c] = 0; p = 0 }
	:: d_step { le_p[c] -> le_p[c] = 0 }
	od
}

proctype Sweeper() {
end:	do
#ifndef NO_SWEEPER
	:: d_step { lk && (dead[lk] || cancelled[lk]) -> wr[lk] = 0; lk = 0; REMOVED }
	:: d_step { lk && lk != OTHER && faults > 0 -> faults--; wr[lk] = 0; lk = 0; REMOVED }
	:: d_step { wr[1] && !mark[1] && faults > 0 -> faults--; wr[1] = 0 }    /* a ticket is overdue; a tail stays behind */
	:: d_step { wr[2] && !mark[2] && faults > 0 -> faults--; wr[2] = 0 }
#endif
	:: false
	od
}

#if defined(HELD) || defined(POLL)
/* A client that knows nothing of the queue, or never waits in it. */
proctype Other() {
#ifdef HELD
	d_step { lk = 0; REMOVED };
#endif
#ifdef POLL
end:	do
	:: d_step { !lk && !tail -> assert(NOWAITER || taillost); lk = OTHER };         /* Q4 */
		d_step { lk = 0; REMOVED }
	od
#endif
}
#endif

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
		for (i : 1 .. N) { run Client(i) }
		for (i : 1 .. N) { run Late(i) }
		run Lease();
		run Sweeper();
#if defined(HELD) || defined(POLL)
		run Other();
#endif
#ifdef HELD
		lk = OTHER;
#endif
		i = 0
	}
}

#ifdef LTL
#define live1 (waiting[1] && !dead[1])
#define live2 (waiting[2] && !dead[2])
#define live3 (waiting[3] && !dead[3])
#if N == 2
ltl live { []<> !live1 && []<> !live2 }
#else
ltl live { []<> !live1 && []<> !live2 && []<> !live3 }
#endif
ltl drain { <>[] (EMPTY && !lk) }
#endif
