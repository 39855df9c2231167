package mutants_test

// unlockerSuites are what removes locks: that no holder is robbed, and that nothing stays.
func unlockerSuites() []suite {
	return []suite{
		in("pkg/staleness", rules()),
		in("pkg/sweeper", gaps(), removals(), brakes()),
		in("pkg/metadata", proofs()),
		in("internal/lockview", views()),
		in("internal/lockstore", stores()),
		in("internal/witness/holderproc", processes()),
		in("internal/witness/host", hosts()),
		in("internal/witness/pod", pods()),
		in("internal/witness/pod/podproof", podProofs()),
		in("internal/cgroup", groups()),
	}
}

// rules are when a lock may be removed.
func rules() []fault {
	return []fault{
		{"rule-due", "removal.go", `case «due > now.Mono»:`, `false`, "TestDecide"},
		{"rule-warned", "removal.go", `case «warned > now.Mono»:`, `false`, "TestDecide"},
		{"rule-sane", "removal.go", `case «sane > now.Mono»:`, `false`, "TestDecide"},
		{"rule-gap", "removal.go", `max(now.mono(d.warning()), r.Seen.Changed, «c.LastGap»)`, `0`, "TestDecide"},
		{"rule-granted", "removal.go", `due := max(add(now.mono(d.unlock), p.ClockSkew), «grantedUntil(r)»)`, `0`,
			"TestDecide"},
		{"rule-excluded", "removal.go", `c.Excluded(r.Name)`, `false`, "TestDecide"},
		{"rule-forward", "removal.go", `case «!c.Forward»:`, `false`, "TestDecide"},
		{"rule-writable", "removal.go", `case «!c.Writable»:`, `false`, "TestDecide"},
		{"rule-fresh", "removal.go", `case «!c.Fresh»:`, `false`, "TestDecide"},
		{"rule-clock", "removal.go", `case «c.WallClock == Wrong»:`, `false`, "TestDecide"},
		{"rule-unverified", "removal.go", `case «clock == Verified»:`, `true`, "TestDecide"},
		{"rule-abandoned", "removal.go", `!d.proven || «!p.UnlockAbandoned» ||`, `false`, "TestDecideOfTheDead"},
		{"rule-overflow", "removal.go", `sum := a + b; «a < 0 || b < 0 || sum >= 0»`, `true`,
			"TestExtremeTimesDoNotOverflow"},
		{"rule-skew-off", "judge.go", `ahead.Abs() <= p.HolderTolerance()`, `false`, "TestAHoldersClockThatIsOffShows"},
		{"rule-behind", "judge.go", `case «d.clockOff < 0»:`, `false`, "TestAHoldersClockThatIsOffShows"},
		{"rule-order", "judge.go", `d.unlock.Before(d.alert)`, `false`, "TestDecide"},
		{"rule-next", "judge.go", `t.Before(v.Next)`, `true`, "TestJudge"},
		{"rule-idle", "idle.go", `mayBeOff(r, p, moment)`, `false`, "TestNothingIsMissedInALockThatIsIdle"},
		{"rule-idle-dead", "idle.go", `«r.Death != nil» || r.Suspicion`, `false`,
			"TestNothingIsMissedInALockThatIsIdle"},
		{"rule-policy", "policy.go", `case «p.MinWarning <= 0»:`, `false`, "TestPolicyCheck"},
	}
}

// gaps are reasons to start the warning anew, and clocks.
func gaps() []fault {
	return []fault{
		{"gap-canary-late", "canary.go", `mono-c.sent <= canaryLate`, `true`,
			"TestGapsStartTheWarningAnew"},
		{"gap-went-back", "canary.go", `revision < highest`, `false`,
			"TestAfterEtcdWentBackNothingIsRemovedUntilTheRestart"},
		{"gap-term-back", "canary.go", `term < c.term`, `false`,
			"TestAfterEtcdWentBackNothingIsRemovedUntilTheRestart"},
		{"gap-term", "canary.go", `case «term != c.term»:`, `false`, "TestGapsStartTheWarningAnew"},
		{"gap-jump", "observer.go", `moved.Abs() > jumpThreshold`, `false`, "TestGapsStartTheWarningAnew"},
		{"gap-view", "observer.go", `case «!c.Fresh»:`, `false`, "TestGapsStartTheWarningAnew"},
		{"gap-unwritable", "observer.go", "case «!c.Writable»:", `false`,
			"TestAnUnlockerThatCannotWriteSaysSoAtOnceThenSeldomAndWhenItCanAgain"},
		{"clock-peers-back", "clock.go", `peer.known && «peer.revision > highest.revision»`, `false`,
			"TestAnUnlockerKnowsFromOthersThatEtcdWentBack"},
		{"clock-silent", "clock.go", `p.Age > protocol.PresenceTTL`, `false`, "TestWhatVerifiesAClock"},
		{"clock-own", "clock.go", `p.ID == self`, `false`, "TestAClockThatGetsVerifiedAllowsRemovalAtOnce"},
		{"clock-jump", "clock.go", `jump(before, after).Abs() > jumpThreshold`, `false`,
			"TestWhatVerifiesAClock"},
		{"clock-wrong", "clock.go", `offset.Abs() > tolerance(skew)`, `false`,
			"TestAClockThatWasWrongFromTheStartCostsNobodyALock"},
		{"clock-members", "clock.go", `now.Mono-c.membersAt <= memberAge`, `true`,
			"TestWhatVerifiesAClock"},
	}
}

// removals are what an unlocker sends, and what it makes of the answer.
func removals() []fault {
	return []fault{
		{"remove-other-token", "remove.go", `return «t.token == r.Token» &&`, `true`,
			"TestANewHoldWithoutDeadlinesIsNotMistakenForTheOldOne"},
		{"remove-extended", "remove.go", `t.deadline == r.DeadlineRevision`, `true`,
			"TestAnExtensionForgetsOldFailures"},
		{"remove-excluded", "remove.go", `case «d.HeldBack == staleness.Exclude», d.HeldBack`, `false`,
			"TestExcludedLocksAreSparedByName"},
		{"remove-dry", "remove.go", `s.cfg.Mode == DryRun`, `false`,
			"TestADryRunSaysOnceForEachDeadlineWhatItWouldRemove"},
		{"remove-failures", "remove.go", `t.failures >= maxFailures`, `false`,
			"TestAFailingRemovalIsSetAsideAndTriedSlowly"},
		{"remove-answers", "remove.go", `len(done.errs) == len(f.batch)`, `true`,
			"TestWhatFollowsAnAnswer"},
		{"remove-changed", "remove.go", `case «errors.Is(err, metadata.ErrChanged)»:`, `false`,
			"TestWhatFollowsAnAnswer"},
		{"remove-in-flight", "remove.go",
			`slices.ContainsFunc(batch, func(d dueLock) bool { return d.record.Name == r.Name })`, `false`,
			"TestWhatIsInFlightIsNotSentAgain"},
		{"remove-stopping", "remove.go", `«ctx.Err() != nil» || s.soon`, `false`,
			"TestRemovalsInFlightAreFinishedAndNoOtherIsStarted"},
		{"remove-delay", "remove.go", `!d.proof`, `true`, "TestALockDelayFollowsWhatItsDeadlineEnded"},
		{"remove-deaths", "remove.go", `len(deaths) > maxDeaths`, `false`,
			"TestMoreDeathsThanAreRememberedAreFoundByAScan"},
		{"series-kept", "metrics.go", `len(m.unlocked) > 2*maxUnlocked`, `false`,
			"TestRemovalsAreForgottenThoughNobodyAsksForMetrics"},
		{"ticket-clock", "scan.go", `c.WallClock != staleness.Verified`, `false`, "TestOverdueTicketsAreRemoved"},
		{"ticket-skew", "scan.go", `w.TimeoutAt.Add(«s.cfg.Policy.ClockSkew»)`, `-time.Hour`,
			"TestOverdueTicketsAreRemoved"},
		{"ticket-behind", "scan.go", `return «now.Mono-w.Seen >= w.TimeoutAt.Sub(w.Since.Time)»`, `true`,
			"TestAWaiterWhoseClockIsBehindKeepsItsTicket"},
		{"ticket-many", "scan.go", `removed == maxBatch`, `false`, "TestTicketsDoNotDelayLocks"},
		{"audit-suspicion", "audit.go", `r.Suspicion != nil`, `false`, "TestTheAuditLineHasTheWholeRecord"},
		{"audit-problems", "audit.go", `len(r.Problems) > 0`, `false`, "TestTheAuditLineHasTheWholeRecord"},
		{"audit-cause", "audit.go", `st.ExitCode != nil`, `false`, "TestTheAuditLineHasTheWholeRecord"},
		{"audit-signal", "audit.go", `st.Signal != ""`, `false`, "TestTheAuditLineHasTheWholeRecord"},
		{"audit-detail", "audit.go", `st.Detail != ""`, `false`, "TestTheAuditLineHasTheWholeRecord"},
		{"audit-new-hold", "scan.go", `token != r.Token`, `false`, "TestTheStartOfAnAlertIsLoggedOnce"},
	}
}

// brakes are how fast an unlocker removes.
func brakes() []fault {
	return []fault{
		{"brake-off", "remove.go", `now.Mono < s.nextSlot`, `false`, "TestTheBrakeSlowsButNeverStops"},
		{"brake-coming", "scan.go", `due := dueAt.Sub(now.Wall) <= brakeWithin; «due» && !s.spared(r)`, `due || true`,
			"TestTheBrakeSeesWhatIsComing"},
		{"brake-spared", "scan.go", `!s.spared(r)`, `true`, "TestExcludedLocksDoNotEngageTheBrake"},
		{"brake-dead", "scan.go", `v.RemoveAt.Before(due)`, `false`, "TestTheBrakeHoldsForTheDeadToo"},
		{"pace-slow", "scan.go", `case «felt > allowed»:`, `false`,
			"TestBatchesShrinkWhileTheyDelayOthersAndGrowAgain"},
		{"pace-alone", "canary.go", `if «alone && o.removing.Load() == 0» {`, `false`,
			"TestBatchesDoNotShrinkWhereEveryWriteIsSlow"},
		{"alerts-flood", "scan.go", `case «started <= maxAlertLines»:`, `true`,
			"TestAFloodOfAlertsIsCountedNotLogged"},
	}
}

// proofs are which statements count, and what a record may be.
func proofs() []fault {
	return []fault{
		{"proof-lock", "statement.go", `s.Lock == r.Name`, `true`, "TestOnlyAStatementAboutTheHoldIsHeeded"},
		{"proof-uuid", "statement.go", `s.UUID == r.UUID`, `true`, "TestOnlyAStatementAboutTheHoldIsHeeded"},
		{"proof-token", "statement.go", `s.Token == r.Token`, `true`, "TestOnlyAStatementAboutTheHoldIsHeeded"},
		{"proof-cause", "statement.go", `death.Proof()`, `true`, "TestOnlyAStatementAboutTheHoldIsHeeded"},
		{"proof-disputed", "statement.go", `!r.Disputed()`, `true`, "TestOnlyAStatementAboutTheHoldIsHeeded"},
		{"proof-detached", "statement.go", `!r.detached()`, `true`, "TestOnlyAStatementAboutTheHoldIsHeeded"},
		{"record-utf8", "encode.go", `!utf8.ValidString(value)`, `false`, "TestDraftRefuses"},
		{"record-large", "encode.go", `size > MaxRecordBytes`, `false`, "TestDraftRefuses"},
		{"record-order", "encode.go", `d.AutoUnlockAt.Before(d.AlertAt)`, `false`, "TestDraftRefuses"},
		{"record-reserved", "encode.go", `IsReserved(name)`, `false`, "TestDraftRefuses"},
		{"record-backtrace", "encode.go", `len(s) <= MaxBacktraceBytes`, `true`,
			"TestALockNeverFailsBecauseItsBacktraceIsLong"},
		{"record-attributes", "decode.go", `d.attributes > MaxAttributes`, `false`, "TestDecodeIsBounded"},
		{"record-foreign", "decode.go", `i == maxForeign`, `false`, "TestDecodeIsBounded"},
		{"record-kept", "object.go", `text[i] < ' '`, `false`, "TestAControlCharacterInATextIsFoundWhereverItStands"},
		{"share-number", "shares.go", `len(name)-i-1 > maxShareDigits`, `false`, "TestNamesOfShares"},
		{"share-negative", "shares.go", `err != nil || «n < 0»`, `false`, "TestPermitsOfARecord"},
	}
}

// views are what is in memory of what etcd has.
func views() []fault {
	return []fault{
		{"view-moved", "apply.go", `!s.moved()`, `false`, "TestWhichWritesKeepALock"},
		{"view-arrived", "apply.go", `seen.Arrived = «max(1, now)»`, `1`, "TestWatchedWritesAreStampedAsArrived"},
		{"view-unlockers", "apply.go", `len(s.unlockers) < maxUnlockers`, `true`,
			"TestNoWriterFillsTheViewWithUnlockersOrMisplacedRecords"},
		{"view-left", "documents.go", `heard.Sub(u.heard) <= protocol.PresenceTTL`, `true`,
			"TestUnlockersThatLeftOnlyARecord"},
		{"view-foreign", "foreign.go", `len(f.sample) < maxForeignSample`, `true`,
			"TestForeignKeysAreSampledAndCounted"},
		{"view-foreign-locks", "foreign.go", `len(f.in) >= maxForeignLocks`, `false`,
			"TestForeignKeysAreSampledAndCounted"},
		{"view-misplaced", "foreign.go", `len(a.byPrefix) >= maxMisplaced`, `false`,
			"TestNoWriterFillsTheViewWithUnlockersOrMisplacedRecords"},
		{"view-fields", "irregular.go", `len(o.fields) >= maxFields`, `false`,
			"TestALockWithTooManyKeysDoesNotCountAsHealed"},
		{"view-large", "irregular.go", `size > metadata.MaxRecordBytes`, `false`, "TestEveryChangeGivesWhatAListGives"},
		{"view-loose", "snapshot.go", `s.stated.loose++; «s.stated.loose > maxLoose»`, `false`,
			"TestStatementsAboutNoLockAreBounded"},
		{"view-replaced", "snapshot.go", `s.before.rec.UUID != s.after.rec.UUID`, `false`,
			"TestHoldsThatEnd"},
		{"view-quiet", "state.go", `quiet > maxSilence`, `false`, "TestFreshness"},
		{"view-went-back", "run.go", `revision < highest`, `false`, "TestRestoredStoreIsNoticed"},
		{"view-heals", "run.go", `case «l.revision > c.view.Fresh().Revision»:`, `false`,
			"TestAComparisonWaitsForTheWatch"},
		{"view-idle", "view.go", `until <= now.Mono`, `false`, "TestASurveyMissesNothing"},
		{"view-free", "index.go", `is(it.rec)`, `true`, "TestWhatKeepsALockFromBeingFree"},
	}
}

// stores are requests of unlockers and operators.
func stores() []fault {
	return []fault{
		{"store-refused", "autounlock.go", `locktxn.Code(err) == codes.InvalidArgument && n > 1`, `false`,
			"TestAutoUnlockWithAnEtcdThatAllowsLess"},
		{"store-lease", "autounlock.go", `locktxn.LeaseGone(err)`, `false`,
			"TestAutoUnlockTakesANewLeaseWhenItsOwnIsGone"},
		{"store-lost", "autounlock.go", `case «r.Record.Token != 0 && wroteEnding(r, history)»:`, `false`,
			"TestAutoUnlockWithALostAnswer"},
		{"store-proof", "autounlock.go", `r.Ending.Ended == metadata.EndedAbandoned`, `false`,
			"TestAnAbandonedLockIsRemovedOnlyWhileItsProofStands"},
		{"store-full", "forceunlock.go", `err == unknown && locktxn.NoSpace(unknown)`, `false`,
			"TestForceUnlockInAFullEtcd"},
		{"store-over", "forceunlock.go", `e.Now.Token == 0`, `false`, "TestForceUnlockOfAHoldThatIsOver"},
		{"store-possible", "operators.go", `possible(&now.Record)`, `true`,
			"TestALostExtensionThatCannotHappenIsNoDoubt"},
		{"store-ranges", "ranges.go", `len(ranges) < maxRanges`, `true`, "TestRemovalAmongForeignKeysIsComplete"},
		{"delay-own", "delays.go", `kv.ModRevision == d.Revision`, `true`, "TestTheEndOfADelayWhoseAnswerIsLost"},
		{"store-trim", "history.go", `excess <= 0`, `false`, "TestTrimHistoryKeepsTheNewestEndings"},
		{"store-delay-dead", "../locktxn/removal.go", `r.Ending.Ended != metadata.EndedAbandoned`, `true`,
			"TestNoDelayFollowsADeadHolder"},
		{"watch-slow", "watch.go", `b.bytes >= b.limit`, `false`, "TestWatchEndsWhenItsConsumerIsTooSlow"},
		{"watch-behind", "watch.go", `behind > tooOld && w.synced`, `false`, "TestWatchEndsWhenItResumesFarBehind"},
		{"watch-silent", "watch.go", `quiet >= w.patience`, `false`, "TestWatchEndsWhenTheNetworkIsSilent"},
	}
}

// processes are what a holder says of its process.
func processes() []fault {
	return []fault{
		{"proc-zombie", "holderproc.go", `s.State == 'Z' && «s.Threads <= 1»`, `true`,
			"TestAProcessThatEndedIsToldFromOneWhoseFirstThreadEnded"},
	}
}

// hosts are deaths that a witness on the machine states.
func hosts() []fault {
	return []fault{
		{"host-reused", "processes.go", `(«s.Start != w.start» || s.Ended())`, `false`,
			"TestAnotherProcessWithTheIDProvesTheEnd"},
		{"host-boot", "follow.go", `return «boot == h.holder.boot»`, `false`,
			"TestAnEarlierBootThatStillTakesLocksIsAnotherMachines"},
		{"host-renamed", "follow.go", `case «old.holder != h.holder»:`, `false`,
			"TestAHoldWhoseProcessIsNamedAnewIsLeftAlone"},
		{"host-again", "follow.go", `case «old.shown && !stated»:`, `false`, "TestAStatementThatIsGoneIsMadeAgain"},
		{"host-command", "commands.go", `case «n == 0»:`, `true`, "TestAHoldEndsWithItsProcessAndItsCommand"},
	}
}

// pods are deaths that the witness of a Kubernetes cluster states.
func pods() []fault {
	return []fault{
		{"pod-over", "witness.go", `if «mine(r.Suspicion)» {`, `false`,
			"TestASuspicionThatTheWitnessDispelledComesBack"},
		{"pod-known", "witness.go", `r.Death != nil`, `false`, "TestWhatIsKnownAlreadyIsNotStated"},
	}
}

// podProofs are what proves the end of a container.
func podProofs() []fault {
	return []fault{
		{"pod-detached", "judge.go", `process.Detached`, `false`, "TestJudge"},
		{"pod-own-clock", "judge.go", `case «p.OwnClock»:`, `false`, "TestJudge"},
		{"pod-unwatched", "judge.go", `since < r.Seen.First`, `false`, "TestJudge"},
		{"pod-later-start", "judge.go", `case «late(r, finished) != ""»:`, `false`, "TestJudge"},
		{"pod-same-moment", "judge.go", `case «!r.LockedAt.Add(clockMargin).Before(finished)»:`, `false`,
			"TestJudge"},
		{"pod-namesake", "judge.go", `case «s.Absent >= AbsentFor»:`, `true`, "TestJudgeWithoutThePod"},
		{"pod-may-restart", "judge.go", `c.MayRestart && !p.KubeletEnded`, `false`, "TestJudge"},
		{"pod-patience", "observe.go", `before.Deleting != Never`, `false`,
			"TestThePatienceWithAPodThatIsToEndBeginsOnce"},
	}
}

// groups are commands in a cgroup.
func groups() []fault {
	return []fault{
		{"group-whole", "tree_linux.go", `s.Ino != root`, `false`, "TestWhatIsNotTheWholeTreeProvesNothing"},
		{"group-kind", "tree_linux.go", `fsys.Type != unix.CGROUP2_SUPER_MAGIC`, `false`,
			"TestWhatIsNotTheWholeTreeProvesNothing"},
		{"group-outside", "tree_linux.go", `!filepath.IsLocal(below)`, `false`, "TestOwnIsWithinWhatIsMounted"},
		{"group-below", "tree_linux.go", `!ids[id]`, `true`, "TestAGroupIsFoundAsLongAsItIsThere"},
	}
}
