package mutants_test

// clientSuites are what a program that locks relies on: that it holds what it believes to hold, and hears when it does
// not.
func clientSuites() []suite {
	return []suite{
		in("internal/locktxn", transactions()),
		in("internal/locktxn/etcdretry", sendings()),
		in("pkg/mutex", deadlines(), acquisitions(), queues(), adoptions(), releases(), bounds()),
		in("pkg/jobs", periods(), tasks()),
		in("pkg/fencing", fences()),
		in("test/fencing", fencedStatements()),
		in("pkg/leader", leaders()),
		in("pkg/locktest", fixtures()),
	}
}

// transactions are what the protocol's transactions read and write. Compares are left out by test/robustness.
func transactions() []fault {
	return []fault{
		{"txn-proof", "removal.go", `r.Record.Death != nil`, `false`, "TestRemoveAbandoned"},
		{"txn-ending-large", "removal.go", `len(r.ending) > metadata.MaxRecordBytes`, `false`,
			"TestEndingIsNeverTooLarge"},
		{"txn-ticket-left", "removal.go", `metadata.IsUUID(r.Record.UUID)`, `false`,
			"TestRemovalTakesTheTicketOfTheHolderAlong"},
		{"txn-foreign", "removal.go", `!r.Record.Foreign()`, `true`, "TestRemovalSparesForeignKeys"},
		{"txn-nobody", "removal.go", `if «r.Record.Token != 0» {`, `true`, "TestRemovalOfNobodysRecord"},
		{"txn-tail", "queue.go", `before.Revision == 0`, `true`, "TestTailIsPutBack"},
		{"txn-late", "hold.go", `deadlines.Succeeded`, `true`, "TestAlive"},
	}
}

// sendings are requests without an answer.
func sendings() []fault {
	return []fault{
		{"send-unknown", "send.go", "case Unknown:\n\t\ts.answer.Indeterminate = «true»", `false`,
			"TestTransactionIsSentAgainUntilItsOutcomeIsKnown"},
		{"send-refresh", "send.go", `s.refreshes > maxRefreshes`, `false`,
			"TestTransactionIsSentAgainUntilItsOutcomeIsKnown"},
		{"send-time", "send.go", `context.WithDeadline(ctx, «began.Add(most)»)`, `began.Add(time.Hour)`,
			"TestSendingEndsWithItsTime"},
		{"send-same-keys", "group.go", `slices.ContainsFunc(g.waiting, sameKeys)`, `false`,
			"TestSomeTransactionsNeverShareARequest"},
		{"send-large", "group.go", `txn.Bytes() > locktxn.MaxBytes/groupSize`, `false`,
			"TestSomeTransactionsNeverShareARequest"},
		{"send-apart", "group.go", `time.Now().Before(g.apart)`, `false`, "TestRefusalOfOneDoesNotConcernTheOthers"},
		{"send-callers", "group.go", `t.request.callers == 0`, `true`,
			"TestSharedRequestLastsAsLongAsSomebodyWaitsForIt"},
		{"send-given-up", "group.go", `t.request == nil`, `false && t.request == nil`,
			"TestCallerThatGivesUpWhileItWaitsIsNotSent"},
	}
}

// deadlines are how long a holder may believe that it holds the lock.
func deadlines() []fault {
	return []fault{
		{"holder-time-over", "alive.go", `case «left <= 0»:`, `false`,
			"TestHolderThatIsCutOffStopsBeforeTheAutoUnlock"},
		{"holder-margin", "alive.go", `autoUnlockAt.Sub(at)-«l.set.safetyMargin»`, `0`,
			"TestAliveMovesBothDeadlines"},
		{"holder-first-sending", "acquisition.go", `until:   «b.monotonic».Add`, `time.Now()`,
			"TestHolderThatIsCutOffStopsBeforeTheAutoUnlock"},
		{"holder-slept", "deadline.go", `slept >= leastSleep`, `false`,
			"TestHolderWhoseMachineSleptStopsWhenItWakes"},
		{"holder-clock-back", "deadline.go", `at.Before(passed)`, `false`,
			"TestClockThatIsSetBackMovesNoDeadlineBack"},
		{"holder-less", "deadline.go", `«l.timeLeft() < left» { // each`, `false`,
			"TestTimeThatWasGivenIsNotTakenBack"},
		{"holder-given", "deadline.go", `most, bound := given(autoUnlockAt, by); «bound»`, `false && bound`,
			"TestOperatorsClockDoesNotCount"},
		{"holder-shortened", "deadline.go", `!autoUnlockAt.After(l.deadline.recorded)`, `false`,
			"TestNobodyShortensTheTime"},
		{"holder-deadline-gone", "alive.go", `case «now.AutoUnlockAt.IsZero()»:`, `false`,
			"TestAliveTellsThatTheDeadlineIsGone"},
		{"heartbeat-maximum", "alive.go", `next.After(end)`, `false`,
			"TestHeartbeatHoldsUntilTheMaximumAndDoesNotPutOffTheAlert"},
		{"heartbeat-alert", "alive.go", `l.extension.alertTarget.Before(alertAt)`, `false`,
			"TestHeartbeatHoldsUntilTheMaximumAndDoesNotPutOffTheAlert"},
		{"heartbeat-granted", "alive.go", `return latest(alertAt, «l.alertGranted()»)`, `time.Time{}`,
			"TestAlertThatWasGrantedIsNotMovedBack"},
		{"holder-asleep", "loss.go", `l.timeLeft() <= 0`, `false`, "TestAliveAfterASleepThatWasTooLongIsALoss"},
		{"holder-another", "loss.go", `return now.Token == l.held.Token && «now.UUID == l.held.UUID»`, `true`,
			"TestAliveOfAHoldThatAnotherUUIDReplacedIsALoss"},
	}
}

// acquisitions are attempts whose answers are lost, late or refusals.
func acquisitions() []fault {
	return []fault{
		{"attempt-unsealed", "acquisition.go",
			"func (a *acquisition) abandonIndeterminate() {\n\tif «a.indeterminate» {", `false`,
			"TestLateSendingAfterARefusalIsRefused"},
		{"attempt-mark", "acquisition.go", "if «a.indeterminate» {\n\t\tl.origin.cancel", `false`,
			"TestLateSendingAfterTheEndOfItsHoldIsRefused"},
		{"attempt-left", "acquisition.go", "if «r.Indeterminate» {\n\t\t\ta.abandon()", `false`,
			"TestLockGivenUpWithoutAnAnswerIsCleanedUp"},
		{"attempt-own-hold", "acquisition.go", "mine, ok := a.holders.mine(a.draft.UUID)\n\tif «!ok» {", `true`,
			"TestLockRetriesWithTheSameUUIDUntilItKnows"},
		{"attempt-fresh", "acquisition.go", `fresh := «a.set.autoUnlockAfter / 3»`, `time.Hour`,
			"TestWaitThroughALongOutageGetsFreshDeadlines"},
		{"attempt-queue", "acquisition.go", `n := r.Keys(0).Count; «n > 0»`, `n < 0`,
			"TestTryLockDoesNotPassTheQueue"},
		{"attempt-reentrant", "acquire.go", `hold.set.kind.covers(a.set.kind)`, `true`,
			"TestReentrantHoldIsGivenBackByTheLastUnlock"},
		{"attempt-own-lock", "acquire.go", `hold.wanted != a.lock`, `false`,
			"TestWhoAsksForItsOwnLockIsToldWhereItTookIt"},
		{"together-own", "batch.go", `len(b.held(r)) > 0`, `false`,
			"TestSeveralLocksWhoseRequestIsSentTwiceAreTheSameHolds"},
		{"together-taken", "batch.go", `mine := b.held(s); «len(mine) == len(b.wanted)»`, `len(mine) > 0`,
			"TestGroupOfWhichOneIsTakenAwayBeforeTheAnswerIsLost"},
		{"together-queue", "batch.go", `n := r.Keys(2 * i).Count; «n > 0»`, `n < 0`, "TestAllOrNothing"},
		{"permits-free", "holders.go", `k.weight <= h.free(k.limit)`, `true`,
			"TestSemaphoreGivesItsPermitsAndNoMore"},
		{"permits-other-limit", "holders.go", `free -= «max(d.Permits, 1)»`, `1`, "TestPermitsInTheirDelayAreTaken"},
		{"writer-delayed", "holders.go", `len(h.shares)+«len(h.delays)» == 0`, `0`,
			"TestADelayOfAReaderKeepsWritersBackAndNoReaders"},
		{"condition-reach", "conditions.go", `c.reaches(key, string(op.RangeBytes()))`, `false`,
			"TestWhatCannotWorkIsRefusedBeforeEtcdIsAsked"},
		{"condition-end", "conditions.go", `end == "\x00" || «end > prefix»`, `false`,
			"TestWhatCannotWorkIsRefusedBeforeEtcdIsAsked"},
	}
}

// queues are waiters in line.
func queues() []fault {
	return []fault{
		{"queue-hostile-tail", "../../internal/locktxn/queue.go", `metadata.IsUUID(string(tail.Value))`, `true`,
			"TestTailThatDanglesHoldsNobodyUp"},
		{"queue-first", "queue.go", `case «len(older) > 0»:`, `false`, "TestManyGiveUpTogether"},
		{"queue-late-commit", "queue.go", "if _, ok := a.holders.mine(a.draft.UUID); «!ok» {", `true || ok`,
			"TestWaiterKnowsItsOwnHold"},
		{"queue-timeout", "queue.go", "end, ok := ctx.Deadline(); «ok»", `false && end.IsZero()`,
			"TestWaiterSaysWhenItGivesUp"},
		{"queue-tail", "queue.go", "if «len(r.Keys(op).Kvs) > 0» {\n\t\treturn", `true`,
			"TestDeathAtTheEndStarvesNobody"},
		{"queue-lease", "loss.go", `cause != ErrUnlocked`, `false`,
			"TestRecordThatIsDeletedByHandLetsTheNextOneIn"},
		{"urgent-again", "waiting.go", `!slices.Contains(u.asked, d.UUID)`, `true`,
			"TestFailureToAskDoesNotEndTheWait"},
	}
}

// adoptions are holds that go from one process to another.
func adoptions() []fault {
	return []fault{
		{"adopt-other", "adopt.go", `doc.UUID != uuid`, `false`, "TestHoldOfAnotherIsNotAdopted"},
		{"adopt-undetached", "adopt.go", `!set.forHolder`, `false`,
			"TestAnAdoptedHoldIsNotAbandonedWhenItsFirstProcessEnds"},
		{"adopt-for-holder", "adopt.go", `!set.forHolder`, `true`, "TestWhoReportsForTheHolderDoesNotTakeItsPlace"},
		{"adopt-over", "adopt.go", "time.Until(l.deadline.until) <= 0", `false`,
			"TestHoldWhoseTimeIsOverIsExtendedByItsAdoption"},
		{"adopt-alert", "alive.go", `l.extension.alertAfterUnlock`, `false`, "TestHeartbeatKeepsWhatAScriptSaid"},
	}
}

// releases are ends of holds.
func releases() []fault {
	return []fault{
		{"release-tombstone", "conditions.go", `l.entombed(r, tombstone)`, `false`,
			"TestUnlockWithWritesWhoseAnswerIsLostIsDoneOnce"},
		{"release-unknown", "conditions.go", `err != nil && r.Indeterminate`, `false`,
			"TestUnlockWithoutAnyAnswerCanBeAskedAgain"},
		{"release-inner", "conditions.go", `hold.reentry.count > 0`, `false`, "TestUnlockWithRefusesWhatCannotWork"},
		{"release-panic", "acquire.go", `value := recover(); «value != nil»`, `false && value == nil`,
			"TestPanicOfAHookUnwindsTheCallerAndLeavesNoLock"},
		{"release-given-up", "background.go", `time.Now().After(do.until)`, `false`, "TestCleanUpIsGivenUpInTheEnd"},
		{"release-loss-told", "loss.go", `first = «l.cause == nil»`, `true`, "TestHooksAreToldTheStoryOfALock"},
	}
}

// bounds are limits of what is kept, written and waited for.
func bounds() []fault {
	return []fault{
		{"bound-cleaners", "background.go", `w.cleaners == maxCleaners`, `false`,
			"TestFewCleanUpsAreUnderWayAtATime"},
		{"bound-attempt", "client.go", `o.AttemptTimeout > maxAttemptTimeout`, `false`,
			"TestClientThatCannotWorkIsRefused"},
		{"bound-margin", "options.go", `s.safetyMargin >= s.autoUnlockAfter`, `false`,
			"TestWhatCannotWorkIsRefusedBeforeEtcdIsAsked"},
		{"bound-shortest", "options.go", `s.autoUnlockAfter < minAutoUnlockAfter`, `false`,
			"TestWhatCannotWorkIsRefusedBeforeEtcdIsAsked"},
		{"bound-writes", "conditions.go", `n > locktxn.MaxBytes`, `false`,
			"TestWritesThatAreTooLargeAreRefusedBeforeTheyAreSent"},
		{"bound-together", "lockall.go", `len(wanted) > MaxTogether`, `false`,
			"TestSeveralLocksThatCannotBeAreRefusedBeforeEtcdIsAsked"},
		{"bound-together-text", "lockall.go",
			`len(text)+len(", ")+len(name)+len(more) > metadata.MaxTextBytes`, `false`,
			"TestThe24LocksThatFitIntoOneTransaction"},
		{"bound-share-name", "holders.go", `len(name) > room`, `false`, "TestWhatCannotWorkIsRefusedBeforeEtcdIsAsked"},
	}
}

// periods are jobs that run once.
func periods() []fault {
	return []fault{
		{"period-again", "onceper.go", `case «start.After(last.Start)»:`, `true`, "TestJobRunsOncePerPeriod"},
		{"period-ahead", "onceper.go", `case «last.Start.After(now.Add(clockTolerance))»:`, `false`,
			"TestClockThatWentBackRunsNothingAgain"},
		{"period-begun", "onceper.go", `!start.After(latest.Now.Add(protocol.PresenceTTL+clockTolerance))`, `true`,
			"TestClockThatIsAheadOfAllUnlockersUsesNothingUp"},
		{"period-left-over", "onceper.go", `kv.Lease != 0`, `true`, "TestClockThatIsAheadOfAllUnlockersUsesNothingUp"},
		{"period-back", "onceper.go", `!failed || !o.giveBack`, `true`,
			"TestRunThatFailedUsesThePeriodUpUnlessItGivesItBack"},
		{"period-good-back", "onceper.go", `«!failed» || !o.giveBack`, `false`,
			"TestRunThatFailedUsesThePeriodUpUnlessItGivesItBack"},
		{"period-reset", "onceper.go", `«errors.Is(err, mutex.ErrCondition)»: // somebody`, `false`,
			"TestPeriodThatSomebodyResetIsNotGivenBack"},
		{"period-shared", "onceper.go", `isShared(draft)`, `false`, "TestWhatCannotBeIsRefusedBeforeEtcdIsAsked"},
	}
}

// tasks are sets of tasks.
func tasks() []fault {
	return []fault{
		{"task-exhausted", "task.go", `now.Exhausted`, `false`, "TestTaskThatFailedIsTriedAgainUpToTheMaximum"},
		{"task-limit", "task.go", `len(captured) == limit`, `false`, "TestWorkerIsAskedAboutOneTaskAndMayTakeOthers"},
		{"task-transition", "task.go", `!slices.Contains(t.set.opts.Transitions[t.from], state)`, `false`,
			"TestTransitionsAreThoseOfTheCaller"},
		{"task-attempts", "task.go", `!slices.Contains(t.set.opts.Failures, state)`, `true`,
			"TestTaskThatFailedIsTriedAgainUpToTheMaximum"},
		{"task-lost", "task.go", `s.holder(t.name, r).Token != t.lock.Token()`, `false`, "TestLateWorkerIsRefused"},
		{"task-anew", "task.go", `now.created != t.created`, `false`, "TestTaskWhoseKeySomebodyDeletedIsNotMadeAgain"},
		{"task-data", "tasks.go", `len(data) > protocol.MaxDataBytes`, `false`,
			"TestWhatCannotBeIsRefusedBeforeEtcdIsAsked"},
		{"task-page", "tasks.go", `!read.More`, `true`, "TestLargeSetsAreReadInPages"},
	}
}

// fences are resources that check the token.
func fences() []fault {
	return []fault{
		{"fence-old", "memory.go", `token < f.newest`, `false`,
			"TestNewerTokenWaitsForTheOlderWriteAndShutsItsHolderOut"},
		{"fence-beside", "memory.go", `f.inside == token`, `true`,
			"TestNewerTokenWaitsForTheOlderWriteAndShutsItsHolderOut"},
		{"fence-full", "memory.go", `len(m.resources) >= m.limit`, `false`,
			"TestMemoryRefusesWhatItCannotKeepAndKeepsWhatItHas"},
		{"fence-header", "fence.go", `strconv.FormatInt(token, 10) != values[0]`, `false`, "TestTokenOfARequest"},
	}
}

// fencedStatements are those to a database.
func fencedStatements() []fault {
	const file = "../../pkg/fencing/sql.go"
	return []fault{
		{"fence-sql-none", file, `!slices.ContainsFunc(args, func(arg any) bool { return isToken(arg, token) })`,
			`false`, "TestStatementThatFencesNothingIsNotRun"},
		{"fence-sql-refused", file, `case «rows == 0»:`, `false`, "TestStatementThatCarriesItsFence"},
		{"fence-sql-many", file, `case «rows > 1»:`, `false`,
			"TestStatementOnMoreThanOneRowIsTakenBackByItsTransaction"},
	}
}

// leaders are leaderships.
func leaders() []fault {
	return []fault{
		{"leader-again", "leader.go", `again = «lost && ctx.Err() == nil»`, `false && lost`,
			"TestLeaderThatIsDeposedStandsAgain"},
		{"leader-unhealthy", "leader.go", `o.Check != nil`, `false`, "TestLeaderLeadsAsLongAsItIsHealthy"},
	}
}

// fixtures are what tests of other people see.
func fixtures() []fault {
	return []fault{
		{"fixture-proof", "locktest.go", `!r.Record.Proven()`, `false`, "TestHolderDisputesItsDeath"},
		{"fixture-left", "look.go", `key.Kind == protocol.KindField && !left[key.Lock]`, `false`,
			"TestAssertionsCanFail"},
	}
}
