/* lock.pml - one lock name over an etcd-like store: deadlines, sweepers that
 * are all active, transactions whose client saw an error but which commit now,
 * later or never, and a shared resource that checks fencing tokens.
 *
 * The store is one record: uuid, create revision, deadline, and the mod
 * revision of the deadline key. Each etcd transaction is one atomic step.
 * Between two transactions every process can be delayed without bound: that is
 * the pause of a client, of a sweeper, of the network.
 *
 * Safety (assert):
 *   I1 ownership  a record is removed only by its own attempt or, past its
 *                 deadline in true time, by a sweeper
 *   I2 fence      no write with an older token is accepted after a newer one;
 *                 a new token is larger than every one the resource has seen
 *   I3 extension  no sweeper removes a record whose deadline lies ahead
 *   I4 monotone   a deadline never moves backwards
 *   I5 foreign    nobody changes another attempt's deadline
 *   I6 cancel     a committed cancel is the end of its attempt: no late acquire
 *                 of it commits afterwards
 *   I7 over       the same for an attempt whose client was told how it ended:
 *                 it gave the lock back, lost it, or never got it
 * With -DOPS=n, n times an operator gives a holder more time:
 *   I8 counted    a holder never counts on a deadline that etcd does not have: a
 *                 write before its time is over finds it holding
 *   I9 before     what an operator is said to have moved is what was there
 *   I4 is about alert_at, too: two handles of a hold may want it at other times
 * Liveness (ltl, weak fairness; build with -DLTL):
 *   gone          once owners stop renewing, the record goes and stays away
 *   nolong        a record past its deadline does not stay for ever, nor does
 *                 one that no client knows of
 *
 * Broken variants, each must FAIL (run.sh): UNFENCED COHERENCE_STRICT
 *   SWEEP_UUID_ONLY SWEEP_BLIND NO_GRACE ALIVE_NO_MONO ALIVE_BLIND
 *   UNLOCK_BLIND NO_CANCEL_GUARD RELEASE_IN_DOUBT LOST_IN_DOUBT
 *   REFUSED_IN_DOUBT NO_SWEEPER; with OPS: EXTEND_BLIND EXTEND_ALERT_BLIND
 *   EXTEND_BY_HOLD EXTEND_ANNOUNCED ALIVE_NO_MONO SWEEP_UUID_ONLY
 */
#ifndef NC
#define NC 2            /* clients */
#endif
#ifndef NA
#define NA 1            /* attempts (fresh uuids) per client */
#endif
#ifndef NS
#define NS 1            /* sweepers, all active */
#endif
#ifndef TTL
#define TTL 1
#endif
#ifndef MAXT
#define MAXT 1          /* nothing is started or renewed after this time */
#endif
#ifndef SKEW
#define SKEW 1          /* |a sweeper's clock - true time| <= SKEW */
#endif
#ifdef NO_GRACE
#define GRACE 0
#else
#define GRACE SKEW
#endif
#ifndef NW
#define NW 1            /* writes to the resource per hold */
#endif
#ifndef NV
#define NV 1            /* alive calls per hold */
#endif
#ifndef FAULTS
#define FAULTS 2        /* lost answers, late or lost transactions, crashes, in all */
#endif
#ifdef OPS
#ifndef MORE
#define MORE 1          /* the time that an operator gives */
#endif
#define ENDT (MAXT+TTL+GRACE+SKEW+OPS*MORE)
#else
#define ENDT (MAXT+TTL+GRACE+SKEW)
#endif
#define NID (NC*NA+1)

/* A sweeper that runs ahead by SKEW and may be slow does all that a slower
 * clock can do; for liveness the worst is the one that runs behind. */
#ifdef LTL
#define SCLOCK (now - SKEW)
#else
#define SCLOCK (now + SKEW)
#endif

byte faults = FAULTS;
short now = 0;                                  /* true time */
byte rev = 0;                                   /* counts creations; lk_mod counts the puts of
                                                 * one record's deadline: together they tell what
                                                 * etcd's create and mod revisions tell */

bool lk = 0; byte lk_id = 0, lk_crev = 0, lk_dl = 0, lk_mod = 0;   /* the record */
bool cancelled[NID];                            /* .cancelled/<uuid> */
bool over[NID];                                 /* ghost: the client was told how the attempt ended */

/* errors seen, outcome open: may commit at any later time, or never */
bool la_p[NID]; byte la_dl[NID];                            /* acquire */
bool lv_p[NID]; byte lv_crev[NID]; byte lv_dl[NID];         /* alive */
bool lu_p[NID]; byte lu_crev[NID];                          /* unlock */
bool lc_p[NID];                                             /* cancel */
bool ls_p[NS];  byte ls_crev[NS]; byte ls_mod[NS];          /* sweeper's delete */

byte res_tok = 0;                               /* the resource: newest token it has seen */
#ifdef LTL
bool knows[NID];                                /* ghost: the client believes it holds it */
#define KNOWS(x) knows[id] = x
#else
#define KNOWS(x) skip
#endif

#ifdef OPS
byte lk_al = 0;                                 /* alert_at */
byte ops = OPS;
bool lx_p = 0; byte lx_crev = 0, lx_mod = 0, lx_was = 0, lx_dl = 0, lx_al = 0;     /* more time, answer lost */
#define ALERT(x) lk_al = x
#define LATER(x) lk_al = (lk_al < x -> x : lk_al)
#define COUNT(x) bel = x
#else
#define ALERT(x) skip
#define LATER(x) skip
#define COUNT(x) skip
#endif

inline removed() { lk = 0; lk_id = 0; lk_crev = 0; lk_dl = 0; lk_mod = 0 }

/* If C(uuid)=0, C(.cancelled/uuid)=0 Then put every field Else get uuid.
 * got: the record is this attempt's, through this call or an earlier one. */
inline t_acquire(id_, dl_, got_, tok_) {
	if
#ifdef NO_CANCEL_GUARD
	:: !lk ->
#else
	:: !lk && !cancelled[id_] ->
#endif
		assert(!cancelled[id_]);                /* I6 */
		assert(!over[id_]);                     /* I7 */
		rev++;
		assert(rev > res_tok);                  /* I2: a new token is the newest */
		lk = 1; lk_id = id_; lk_crev = rev; lk_dl = dl_; lk_mod = 1; ALERT(now)
	:: else -> skip
	fi;
	got_ = (lk && lk_id == id_);
	tok_ = (got_ -> lk_crev : 0)
}

/* If value(uuid)=mine, create_rev(uuid)=mine
 * Then put alive, (If value(deadline) < new Then put deadline, alert_at
 *                  Else (If value(alert_at) < new Then put alert_at))
 * Else get uuid. What alive says is left out here: deaths.pml has it. */
inline t_alive(id_, crev_, dl_, ok_) {
	if
#ifdef ALIVE_BLIND
	:: lk ->
#else
	:: lk && lk_id == id_ && lk_crev == crev_ ->
#endif
		assert(lk_id == id_);                   /* I5 */
		ok_ = 1;
		if
#ifdef ALIVE_NO_MONO
		:: true ->
#else
		:: lk_dl < dl_ ->
#endif
			assert(dl_ >= lk_dl);           /* I4 */
			lk_dl = dl_; lk_mod++;
			ALERT((lk_al < now -> now : lk_al))
		:: else -> LATER(dl_)
		fi
	:: else -> ok_ = 0
	fi
}

#ifdef OPS
#ifdef EXTEND_BLIND
#define EXTEND_IF lk
#else
#ifdef EXTEND_BY_HOLD
#define EXTEND_IF (lk && lk_crev == crev_ && lk_dl < dl_)
#else
#define EXTEND_IF (lk && lk_crev == crev_ && lk_mod == mod_)
#endif
#endif
/* If C(uuid)=shown, M(deadline)=shown Then put deadline, If V(alert_at) < new Then put alert_at */
inline t_extend(crev_, mod_, was_, dl_, al_) {
	if
	:: EXTEND_IF ->
		assert(lk_crev == crev_);               /* I5 */
		assert(dl_ >= lk_dl);                   /* I4 */
		assert(was_ == lk_dl);                  /* I9 */
		lk_dl = dl_; lk_mod++;
#ifdef EXTEND_ALERT_BLIND
		assert(al_ >= lk_al);                   /* I4 */
		lk_al = al_
#else
		if
		:: lk_al < al_ -> lk_al = al_
		:: else -> skip
		fi
#endif
	:: else -> skip
	fi
}
#endif

/* If V(uuid)=mine, C(uuid)=mine Then delete fields */
inline t_unlock(id_, crev_) {
	if
#ifdef UNLOCK_BLIND
	:: lk ->
#else
	:: lk && lk_id == id_ && lk_crev == crev_ ->
#endif
		assert(lk_id == id_);                   /* I1 */
		removed()
	:: else -> skip
	fi
}

/* of an attempt whose outcome is unknown: If V(uuid)=mine Then put .cancelled/uuid, delete fields Else put .cancelled/uuid */
inline t_cancel(id_) {
	if
	:: lk && lk_id == id_ -> removed()
	:: else -> skip
	fi;
	cancelled[id_] = 1
}

/* of a hold of which an earlier sending is unanswered: If V(uuid)=mine, C(uuid)=mine
 * Then put .cancelled/uuid, delete fields Else put .cancelled/uuid */
inline t_unlock_in_doubt(id_, crev_) {
	t_unlock(id_, crev_);
	cancelled[id_] = 1
}

/* If create_rev(uuid)=seen, mod_rev(deadline)=seen Then delete fields */
inline t_sweep(crev_, mod_) {
	if
#ifdef SWEEP_BLIND
	:: lk ->
#else
#ifdef SWEEP_UUID_ONLY
	:: lk && lk_crev == crev_ ->
#else
	:: lk && lk_crev == crev_ && lk_mod == mod_ ->
#endif
#endif
		assert(lk_dl <= now);                   /* I1, I3 */
		removed()
	:: else -> skip
	fi
}

inline t_write(tok_) {
#ifdef COHERENCE_STRICT
	assert(lk && lk_crev == tok_);                  /* "who writes holds" is false, with fencing too */
#endif
#ifdef UNFENCED
	assert(tok_ >= res_tok);                        /* I2 */
	res_tok = tok_
#else
	if
	:: tok_ >= res_tok -> res_tok = tok_            /* accepted */
	:: else -> skip                                 /* refused */
	fi
#endif
}

proctype Client(byte c) {
	byte k = 0, id = 0, tok = 0, dl = 0, w = 0, v = 0; bool b = 0, again = 0;
	bool doubt = 0;                                                 /* a sending of the acquire is unanswered */
#ifdef OPS
	byte bel = 0;                                                   /* the deadline that it counts on */
#endif
idle:	skip;
	d_step { COUNT(0); id = 0; tok = 0; dl = 0; w = 0; v = 0; b = 0; again = 0; doubt = 0 };
	if
	:: d_step { k < NA && now <= MAXT -> id = c*NA + k + 1; k++; dl = now+TTL;
		KNOWS(1) }
	:: goto gone
	fi;
acq:	if
	:: d_step { t_acquire(id, dl, b, tok); dl = 0; again = 0 };     /* answered */
		if
		:: b -> b = 0;
#ifdef OPS
			d_step { if :: lk && lk_crev == tok -> bel = lk_dl :: else -> skip fi };
#endif
			goto held
		:: else -> goto refd                                    /* someone else's */
		fi
	:: d_step { faults > 0 -> faults--; t_acquire(id, dl, b, tok); b = 0; tok = 0; dl = 0; doubt = 1 } /* committed, answer lost */
	:: d_step { faults > 0 && !la_p[id] -> faults--; la_p[id] = 1; la_dl[id] = dl; dl = 0; doubt = 1 } /* later or never */
	fi;
	if
	:: d_step { !again && now <= MAXT -> again = 1; dl = now+TTL };  goto acq       /* same uuid again */
	:: goto can                                                     /* give up: cancel */
	:: d_step { faults > 0 -> faults-- }; goto crash
	fi;

held:	do
	:: d_step { w < NW -> w++;
#ifdef OPS
		assert(now >= bel || (lk && lk_crev == tok));   /* I8 */
#endif
		t_write(tok) }
#ifdef OPS
	:: d_step { lk && lk_crev == tok && bel != lk_dl -> bel = lk_dl }       /* a watch, or a read */
#ifdef EXTEND_ANNOUNCED
	:: d_step { lx_p && lx_crev == tok -> bel = lx_dl }                     /* told before it is done */
#endif
#endif
	:: d_step { v < NV && now <= MAXT -> v++; t_alive(id, tok, now+TTL, b) };
		if
#ifndef OPS
		:: b -> b = 0
#else
		:: d_step { b -> b = 0; if :: lk && lk_crev == tok -> bel = lk_dl :: else -> skip fi }
#endif
		:: !b -> goto lost                                      /* told: lost */
		:: d_step { faults > 0 -> faults--; b = 0 }             /* answer lost */
		fi
	:: d_step { faults > 0 && v < NV && now <= MAXT && !lv_p[id] -> faults--; v++; lv_p[id] = 1; lv_crev[id] = tok; lv_dl[id] = now+TTL }
	:: goto rel
	:: d_step { faults > 0 -> faults-- }; goto crash
	od;

refd:	skip;
#ifndef REFUSED_IN_DOUBT
	if :: doubt -> goto can :: else -> skip fi;
#endif
	goto done;
lost:	skip;
#ifndef LOST_IN_DOUBT
	if :: doubt -> goto can :: else -> skip fi;
#endif
	goto done;
can:	if
	:: d_step { t_cancel(id) }; goto done
	:: d_step { faults > 0 -> faults--; lc_p[id] = 1 }; goto rel0   /* without an answer it is not over */
	fi;
rel:	if
#ifndef RELEASE_IN_DOUBT
	:: d_step { doubt -> t_unlock_in_doubt(id, tok) }; goto done
	:: d_step { doubt && faults > 0 -> faults--; lc_p[id] = 1 }; goto rel0
	:: d_step { !doubt -> t_unlock(id, tok) }; goto done
#else
	:: d_step { t_unlock(id, tok) }; goto done
#endif
	:: d_step { !doubt && faults > 0 -> faults--; lu_p[id] = 1; lu_crev[id] = tok }; goto rel0
	fi;
done:	skip;
	d_step { over[id] = 1; KNOWS(0) };
	goto idle;
rel0:	KNOWS(0);
	goto idle;

crash:	KNOWS(0);
gone:	skip;
	d_step { id = 0; tok = 0; dl = 0; w = 0; v = 0; b = 0; again = 0; doubt = 0 }
}

#ifdef OPS
/* gives more time: what it shows, and what it does, may be far apart */
proctype Operator() {
	byte x_c = 0, x_m = 0, x_was = 0, x_dl = 0, x_al = 0;
end:	do
	:: d_step { ops > 0 && lk && !x_c && now <= MAXT+TTL -> ops--; x_c = lk_crev; x_m = lk_mod; x_was = lk_dl;
		x_dl = (lk_dl < now -> now : lk_dl) + MORE; x_al = (lk_al < now -> now : lk_al) + MORE;
		x_al = (x_al > x_dl -> x_dl : x_al) }
	:: d_step { x_c -> t_extend(x_c, x_m, x_was, x_dl, x_al); x_c = 0; x_m = 0; x_was = 0; x_dl = 0; x_al = 0 }
	:: d_step { x_c && faults > 0 && !lx_p -> faults--; lx_p = 1; lx_crev = x_c; lx_mod = x_m; lx_was = x_was;
		lx_dl = x_dl; lx_al = x_al; x_c = 0; x_m = 0; x_was = 0; x_dl = 0; x_al = 0 }
	:: d_step { lx_p -> t_extend(lx_crev, lx_mod, lx_was, lx_dl, lx_al);
		lx_p = 0; lx_crev = 0; lx_mod = 0; lx_was = 0; lx_dl = 0; lx_al = 0 }
	:: d_step { lx_p -> lx_p = 0; lx_crev = 0; lx_mod = 0; lx_was = 0; lx_dl = 0; lx_al = 0 }
	od
}
#endif

/* What clients gave up on commits here, at any later time. A transaction that
 * stays pending for ever is one that was lost; DROP also loses it at once,
 * which the fair runs (ltl) need. */
proctype Late(byte id) {
	byte t = 0; bool b = 0;
end:	do
	:: d_step { la_p[id] -> t_acquire(id, la_dl[id], b, t); la_p[id] = 0; la_dl[id] = 0; t = 0; b = 0 }
	:: d_step { lv_p[id] -> t_alive(id, lv_crev[id], lv_dl[id], b); lv_p[id] = 0; lv_crev[id] = 0; lv_dl[id] = 0; b = 0 }
	:: d_step { lu_p[id] -> t_unlock(id, lu_crev[id]); lu_p[id] = 0; lu_crev[id] = 0 }
	:: d_step { lc_p[id] -> t_cancel(id); lc_p[id] = 0 }
#ifdef LTL
	:: d_step { la_p[id] -> la_p[id] = 0; la_dl[id] = 0 }
	:: d_step { lv_p[id] -> lv_p[id] = 0; lv_crev[id] = 0; lv_dl[id] = 0 }
	:: d_step { lu_p[id] -> lu_p[id] = 0; lu_crev[id] = 0 }
	:: d_step { lc_p[id] -> lc_p[id] = 0 }
#endif
	od
}

/* A sweeper acts on what it once saw, by its own clock. */
proctype Sweeper(byte s) {
	byte s_c = 0, s_d = 0, s_m = 0;
end:	do
	:: d_step { lk -> s_c = lk_crev; s_d = lk_dl; s_m = lk_mod };
		if
		:: SCLOCK >= s_d + GRACE ->             /* due, by its clock */
			s_d = 0;
			if
			:: d_step { t_sweep(s_c, s_m); s_c = 0; s_m = 0 }
			:: d_step { faults > 0 && !ls_p[s] -> faults--; ls_p[s] = 1; ls_crev[s] = s_c; ls_mod[s] = s_m; s_c = 0; s_m = 0 }
			fi
		:: d_step { lk_crev != s_c || lk_mod != s_m -> s_c = 0; s_d = 0; s_m = 0 }   /* event: look again */
		fi
	:: d_step { ls_p[s] -> t_sweep(ls_crev[s], ls_mod[s]); ls_p[s] = 0; ls_crev[s] = 0; ls_mod[s] = 0 }
#ifdef LTL
	:: d_step { ls_p[s] -> ls_p[s] = 0; ls_crev[s] = 0; ls_mod[s] = 0 }
#endif
	od
}

proctype Clock() {
end:	do
	:: now < ENDT -> now++
	od
}

#ifdef LTL
/* keeps every run infinite: spin's fair search does not see a cycle in the
 * stuttering of a run that has ended */
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
		for (i : 0 .. NC-1) { run Client(i) }
		for (i : 1 .. NC*NA) { run Late(i) }
#ifndef NO_SWEEPER
		for (i : 0 .. NS-1) { run Sweeper(i) }
#endif
#ifdef OPS
		run Operator();
#endif
		run Clock();
		i = 0
	}
}

#ifdef LTL
#define overdue (lk && now >= lk_dl + GRACE + SKEW)
#define orphan  (lk && !knows[lk_id])
ltl gone   { <>[] !lk }
ltl nolong { []<> !overdue && []<> !orphan }
#endif
