/* deaths.pml - proof of death: one lock, those who hold it, and those who say
 * that they have ended. Time is left out: what goes by deadlines is in lock.pml
 * and grace.pml. Only an unlocker that believes a statement removes here.
 *
 * The store is the record (uuid, create revision, mod revisions of auto_unlock_at
 * and of alive, the key detached) and .deaths/<uuid>: a token, and its mod
 * revision. Each etcd transaction is one atomic step; between two of them
 * anything may happen, so every look may be outdated when it is acted on.
 *
 * NP processes take the lock, extend it in three ways, give it back or end. One
 * of them may hand its hold to the adopter and end. The witness is honest: it
 * states only what it found in a record while that process was dead. Its
 * statement may commit late, twice, or never. A stranger states what it does
 * not know: the token of another hold, or of none.
 *
 *   P1 alive      an abandoned hold that is removed has no living holder: its
 *                 process has ended, nobody has adopted it, and its work was not
 *                 to outlive it. Only a liar breaks this (LIAR)
 *   P2 disputed   a statement is not acted on once a holder has called alive, or
 *                 anybody has extended, after it. With a liar that is what is left (LIE)
 *   P3 withdrawn  a statement that an operator deleted is not acted on
 *   P4 in time    no honest statement is written about a hold that is over, or
 *                 that was detached from its process
 *   P5 acted on   (-DREACH) a dead holder is removed: expected to be found
 *
 * With ASK somebody asks the holder to finish, perhaps of what was shown long ago:
 *   P6 asked      a request lies in the record that it is meant for, and nowhere
 *                 else; that is why a holder may heed it
 *
 * With GROUP the holders are like mutexctl run: each has a command in a cgroup that
 * its record names, which may go on when the holder ends, until somebody kills it.
 * The witness proves the end of both, the process first:
 *   P1 alive      covers the command, too: nothing of it is left
 *
 * Variants that must FAIL (run.sh): LIAR REACH ADOPT_SILENTLY ADOPT_FIRST
 *   DETACH_KEEPS STATE_DETACHED_BLIND REMOVE_NO_DEATH REMOVE_BLIND; with REUSE:
 *   STATE_NO_TOKEN READ_TOKEN_BLIND; with RESERVE: READ_DETACHED_BLIND; with LIE:
 *   STATE_AGAIN READ_DISPUTE_BLIND READ_ALIVE_ONLY READ_DEADLINE_ONLY
 *   REMOVE_NO_DEADLINE REMOVE_NO_ALIVE ALIVE_SILENT; with ASK: ASK_BLIND; with
 *   GROUP: GROUP_UNSEEN (only the process has to be gone) GROUP_ALONE (only the
 *   cgroup has to be empty) GROUP_FIRST (the cgroup is looked at before the process)
 * Compares that are not needed: V(uuid) of a statement (STATE_NO_UUID), C(uuid)
 * of a removal beside M(auto_unlock_at) (REMOVE_NO_TOKEN). Both variants pass.
 */
#ifndef NP
#define NP 2            /* processes that take the lock, once each */
#endif
#ifndef EXT
#define EXT 2           /* extensions of holders, in all */
#endif
#ifndef OPS
#define OPS 1           /* extensions by an operator */
#endif
#ifndef DEL
#define DEL 1           /* statements that an operator deletes, or whose lease ends */
#endif
#ifndef REP
#define REP 1           /* statements that commit twice, or late */
#endif
#ifndef JUNK
#define JUNK 1          /* statements of a stranger */
#endif
#ifdef LIE
#define LIAR
#endif
#ifdef LIAR
#define LIES 1
#else
#define LIES 0
#endif
#ifdef RESERVE          /* the last process takes the lock detached, as a reservation does */
#define RESERVED 1
#else
#define RESERVED 0
#endif
#define NU (NP+1)

/* With GROUP a holder has a command, and its witness waits for the end of that, too. */
#ifdef GROUP
bool work[NP];                          /* something of the command lives, in the cgroup of the record */
#define IDLE(p) !work[p]
#else
#define IDLE(p) true
#endif

/* With REUSE all processes use the same uuid, as a script might. */
#ifdef REUSE
#define U(p) 1
#else
#define U(p) ((p) + 1)
#endif

byte rev = 0;                           /* counts acquisitions: the token */
byte mods = 0;                          /* counts puts of auto_unlock_at and alive of a hold */
bool lk = 0; byte lk_p = 0, lk_tok = 0, lk_m = 0, lk_a = 0; bool lk_det = 0;
bool lk_doc = 0;                        /* the document says detached, as that of a reservation does */
byte d_m[NU]; byte d_tok[NU];           /* .deaths/<uuid>: mod revision (0: none), token */
bool newer_m[NU], newer_a[NU];          /* M(auto_unlock_at), M(alive) > M(.deaths/<uuid>) */
bool old[NU];                           /* 0 < M(.deaths/<uuid>) < C(uuid): written before the hold */
byte puts = 0;                          /* counts statements */

bool dead[NP];                          /* the process has ended */
bool offered = 0; byte off_p = 0, off_tok = 0;  /* a hold that was handed on */
bool adopted = 0;                       /* the adopter has it */
bool disputed = 0;                      /* ghost: this hold was extended after a statement about it */
bool stated = 0;                        /* ghost: there was a statement about this hold */

byte ext = EXT, ops = OPS, dels = DEL, rep = REP, junk = JUNK, lies = LIES;
bool ls_p = 0; byte ls_u = 0, ls_p_ = 0, ls_tok = 0;    /* a statement under way */

#ifdef ASK
byte asked = 0, asks = ASK;             /* the key asked: the token that it is meant for */
#define ANSWERED asked = 0
#else
#define ANSWERED skip
#endif

inline over() {
	ANSWERED;
	lk = 0; lk_p = 0; lk_tok = 0; lk_m = 0; lk_a = 0; lk_det = 0; lk_doc = 0; mods = 0; disputed = 0; stated = 0
}
inline forget(u_) {                     /* delete .deaths/<uuid> */
	d_m[u_] = 0; d_tok[u_] = 0; newer_m[u_] = 0; newer_a[u_] = 0; old[u_] = 0
}
inline t_deadline() {                   /* put auto_unlock_at */
	mods++; lk_m = mods; newer_m[U(lk_p)] = 1; disputed = disputed || stated
}
inline t_progress() {                   /* put alive */
	mods++; lk_a = mods; newer_a[U(lk_p)] = 1; disputed = disputed || stated
}

#ifdef STATE_NO_UUID
#define STATE_UUID true
#else
#define STATE_UUID (lk && U(lk_p) == U(p_))
#endif
#ifdef STATE_NO_TOKEN
#define STATE_TOKEN true
#else
#define STATE_TOKEN (lk && lk_tok == tok_)
#endif
#ifdef STATE_DETACHED_BLIND
#define STATE_ATTACHED true
#else
#define STATE_ATTACHED !lk_det
#endif
#ifdef STATE_AGAIN
#define STATE_ONCE (puts < 4)              /* a bound, not a guard */
#else
#define STATE_ONCE (d_m[U(p_)] == 0 || old[U(p_)])
#endif

/* If V(uuid), C(uuid)=T, M(detached) < T, M(.deaths/<uuid>) < T Then put .deaths/<uuid> */
inline t_state(p_, tok_, honest) {
	if
	:: STATE_UUID && STATE_TOKEN && STATE_ATTACHED && STATE_ONCE ->
		assert(!honest || (lk && lk_tok == tok_ && !lk_det));              /* P4 */
		puts++;
		d_m[U(p_)] = puts; d_tok[U(p_)] = tok_;
		newer_m[U(p_)] = 0; newer_a[U(p_)] = 0; old[U(p_)] = 0;
		stated = stated || (lk && lk_tok == tok_)
	:: else -> skip
	fi
}

/* If V(uuid), C(uuid)=T Then put detached, delete .deaths/<uuid> */
inline t_detach(p_, tok_, ok_) {
	ok_ = (lk && lk_tok == tok_);
	if
	:: ok_ -> lk_det = 1;
#ifndef DETACH_KEEPS
		forget(U(p_))
#endif
	:: else -> skip
	fi
}

/* Extends the hold with this token, if it stands. */
inline extend(tok_) {
	if
	:: lk && lk_tok == tok_ && ext > 0 -> ext--;
		if
		:: t_deadline(); t_progress()           /* alive */
#ifdef ALIVE_SILENT                             /* alive that found the deadline as late already */
		:: disputed = disputed || stated
#else
		:: t_progress()
#endif
		:: t_deadline()                         /* of a client that does not write alive */
		fi
	:: else -> skip
	fi
}

proctype Holder(byte p) {
	byte tok = 0; bool done = 0;
end:	do
	:: d_step { !done && !tok && !lk ->
		rev++; tok = rev; mods = 1;
		lk = 1; lk_p = p; lk_tok = rev; lk_m = 1; lk_a = 0; lk_det = 0; lk_doc = (p == NP-1 && RESERVED);
		newer_m[U(p)] = 1; newer_a[U(p)] = 0; old[U(p)] = (d_m[U(p)] > 0);
		disputed = 0; stated = 0 }                                      /* acquire */
	:: atomic { tok && ext > 0 && lk && lk_tok == tok -> extend(tok) }
	:: d_step { tok && IDLE(p) -> if :: lk && lk_tok == tok -> over() :: else -> skip fi; tok = 0; done = 1 }  /* release */
#ifdef GROUP
	:: d_step { tok && !work[p] && lk && lk_tok == tok -> work[p] = 1 }                             /* starts the command */
	:: d_step { work[p] -> work[p] = 0 }                                                            /* it has ended, or was */
#endif
	:: d_step { tok && p == 0 && !offered -> offered = 1; off_p = p; off_tok = tok }                /* tells the adopter */
	:: d_step { dead[p] = 1; tok = 0 } -> break                                                     /* ends at any time */
	od
#ifdef GROUP
	;
end2:	do
	:: d_step { work[p] -> work[p] = 0 } -> break                                                   /* killed, whenever */
	od
#endif
}

/* Goes on with a hold that another process took. */
proctype Adopter() {
	bool sure = 0;
end:	do
	:: d_step { offered && !sure ->
#ifdef ADOPT_SILENTLY
		sure = (lk && lk_tok == off_tok);               /* it only reads */
#else
#ifdef ADOPT_FIRST
		sure = (lk && lk_tok == off_tok);               /* it works, and detaches later */
#else
		t_detach(off_p, off_tok, sure);
#endif
#endif
		adopted = sure; offered = sure }
#ifdef ADOPT_FIRST
	:: d_step { sure && !lk_det -> t_detach(off_p, off_tok, sure); adopted = sure; offered = sure }
#endif
	:: atomic { sure && ext > 0 && lk && lk_tok == off_tok -> extend(off_tok) }
	:: d_step { sure -> if :: lk && lk_tok == off_tok -> over() :: else -> skip fi; sure = 0; adopted = 0; offered = 0 }
	:: d_step { sure -> sure = 0; adopted = 0; offered = 0 }                        /* ends */
	od
}

/* What the witness looks at first, and then: GROUP takes two looks, between which anything may happen. */
#ifdef GROUP
#define SURE w_sure
#define UNSURE w_sure = 0
#else
#define SURE true
#define UNSURE skip
#endif
#ifdef GROUP_UNSEEN
#define FIRST(p) dead[p]
#define THEN(p) true
#else
#ifdef GROUP_ALONE
#define FIRST(p) true
#define THEN(p) IDLE(p)
#else
#ifdef GROUP_FIRST
#define FIRST(p) IDLE(p)
#define THEN(p) dead[p]
#else
#define FIRST(p) dead[p]
#define THEN(p) IDLE(p)
#endif
#endif
#endif

proctype Witness() {
	byte w_p = 0, w_tok = 0;
#ifdef GROUP
	bool w_sure = 0;
#endif
end:	do
	/* the process of the record has ended: looked at both, in whatever order */
	:: d_step { !w_tok && lk && FIRST(lk_p) -> w_p = lk_p; w_tok = lk_tok }
#ifdef GROUP
	:: d_step { w_tok && !w_sure && THEN(w_p) -> w_sure = 1 }
#endif
	:: d_step { w_tok && SURE -> t_state(w_p, w_tok, true); w_p = 0; w_tok = 0; UNSURE }
	:: d_step { w_tok && SURE && rep > 0 && !ls_p -> rep--; ls_p = 1; ls_p_ = w_p; ls_tok = w_tok;  /* late, and */
		if :: t_state(w_p, w_tok, true) :: skip fi; w_p = 0; w_tok = 0; UNSURE }        /* twice, or only late */
	:: d_step { ls_p -> t_state(ls_p_, ls_tok, true); ls_p = 0; ls_p_ = 0; ls_tok = 0 }
	:: d_step { ls_p -> ls_p = 0; ls_p_ = 0; ls_tok = 0 }                                   /* lost */
	:: d_step { w_tok -> w_p = 0; w_tok = 0; UNSURE }                                       /* restarted */
	/* a stranger: for some uuid, not the token of its hold; it guards nothing */
	:: atomic { junk > 0 && lk -> junk--;
		if
		:: d_step { puts++; d_m[U(lk_p)] = puts; d_tok[U(lk_p)] = 0; newer_m[U(lk_p)] = 0; newer_a[U(lk_p)] = 0; old[U(lk_p)] = 0 }
		:: d_step { puts++; d_m[U(0)] = puts; d_tok[U(0)] = (U(lk_p) == U(0) -> lk_tok - 1 : lk_tok); newer_m[U(0)] = 0; newer_a[U(0)] = 0; old[U(0)] = 0 }
		fi }
	/* a liar: of exactly this hold */
	:: d_step { lies > 0 && lk && !dead[lk_p] -> lies--; t_state(lk_p, lk_tok, false) }
#ifdef STATE_AGAIN
	:: d_step { LIES > lies && rep > 0 && lk && lk_tok == d_tok[U(lk_p)] -> rep--; t_state(lk_p, lk_tok, false) }   /* repeated */
#endif
	od
}

proctype Operator() {
#ifdef ASK
	byte x_tok = 0;
#endif
end:	do
#ifdef ASK
	:: d_step { asks > 0 && lk && !x_tok -> asks--; x_tok = lk_tok }
#ifdef ASK_BLIND
	:: d_step { x_tok -> asked = x_tok; x_tok = 0;
#else
	:: d_step { x_tok -> if :: lk && lk_tok == x_tok -> asked = x_tok :: else -> skip fi; x_tok = 0;
#endif
		assert(!asked || (lk && asked == lk_tok)) }                             /* P6 */
#endif
	:: d_step { ops > 0 && lk -> ops--; t_deadline() }                              /* gives more time */
	:: d_step { dels > 0 && lk && d_m[U(lk_p)] -> dels--; forget(U(lk_p)); stated = 0; disputed = 0 }
	od
}

/* believed: the statement is about this hold, nothing was extended since, and the work ends with the process */
#ifdef READ_TOKEN_BLIND
#define SAME true
#else
#define SAME (d_tok[U(lk_p)] == lk_tok)
#endif
#ifdef READ_DISPUTE_BLIND
#define QUIET true
#else
#ifdef READ_ALIVE_ONLY
#define QUIET !newer_a[U(lk_p)]
#else
#ifdef READ_DEADLINE_ONLY
#define QUIET !newer_m[U(lk_p)]
#else
#define QUIET (!newer_m[U(lk_p)] && !newer_a[U(lk_p)])
#endif
#endif
#endif
#ifdef READ_DETACHED_BLIND
#define ATTACHED true
#else
#define ATTACHED (!lk_det && !lk_doc)
#endif

#ifdef REMOVE_NO_TOKEN
#define REMOVE_TOKEN true
#else
#define REMOVE_TOKEN (lk_tok == s_tok)
#endif
#ifdef REMOVE_NO_DEADLINE
#define REMOVE_DEADLINE true
#else                                   /* mod revisions differ between holds */
#define REMOVE_DEADLINE (lk_tok == s_tok && lk_m == s_m)
#endif
#ifdef REMOVE_NO_ALIVE
#define REMOVE_ALIVE true
#else
#define REMOVE_ALIVE (lk_a == s_a && (!s_a || lk_tok == s_tok))
#endif
#ifdef REMOVE_NO_DEATH
#define REMOVE_DEATH true
#else
#define REMOVE_DEATH (d_m[s_u] == s_d)
#endif
#ifdef REMOVE_BLIND
#define REMOVE true
#else
#define REMOVE (REMOVE_TOKEN && REMOVE_DEADLINE && REMOVE_ALIVE && REMOVE_DEATH)
#endif

proctype Unlocker() {
	byte s_tok = 0, s_m = 0, s_a = 0, s_d = 0, s_u = 0;
end:	do
	:: d_step { lk && !s_tok && d_m[U(lk_p)] && SAME && QUIET && ATTACHED ->
		s_tok = lk_tok; s_m = lk_m; s_a = lk_a; s_u = U(lk_p); s_d = d_m[s_u] }         /* then the grace */
	:: d_step { s_tok ->
		if
		:: lk && REMOVE ->
#ifndef LIE
			assert(dead[lk_p] && IDLE(lk_p) && !lk_doc && !(adopted && off_tok == lk_tok)); /* P1 */
#endif
			assert(!disputed);                                      /* P2 */
			assert(d_m[U(lk_p)] && d_tok[U(lk_p)] == lk_tok);       /* P3 */
			over()
#ifdef REACH
			; assert(false)                                         /* P5 */
#endif
		:: else -> skip
		fi;
		s_tok = 0; s_m = 0; s_a = 0; s_d = 0; s_u = 0 }
	od
}

init {
	byte i;
	atomic {
		for (i : 0 .. NP-1) { run Holder(i) }
		run Adopter();
		run Witness();
		run Operator();
		run Unlocker();
		i = 0
	}
}
