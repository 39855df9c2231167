package mutants_test

const neverLeft = "TestInconsistenciesAreFound"

// readerSuites are what people and other programs are told, and the programs themselves.
var readerSuites = []suite{
	{"internal/etcdlocks", []fault{
		{"leased-queued", `kv.IsContender()`, `false`, "TestLocksOfRealClientsAreFound"},
		{"leased-ours", `v.own.Parse(kv.Key).Kind != protocol.KindForeign`, `false`, "TestLocksOfRealClientsAreFound"},
		{"leased-since", "LockedAt: «c.began»,", `time.Time{}`, "TestOnlyWatchedBeginningsAreKnown"},
		{"leased-waiters-end", `cmp.Or(v.keys[b.Key], &contender{})`, `cmp.Or(v.keys[a.Key], &contender{})`,
			"TestOnlyHoldersHaveEnds"},
		{"leased-released", `at.Before(l.Expires.Add(-slack))`, `true`, "TestEndsAreToldAsFarAsTheyAreKnown"},
	}},
	{"internal/protocol pkg/metadata internal/lockrecord", []fault{
		{"presence-left-over", `lease == 0`, `false`, "TestPresenceIsReadAsFarAsPossible"},
		// Keys and values that other clients wrote.
		{"doc-statement-large", `len(kv.Value) > lockrecord.MaxStatementBytes`, `false`, "TestVectorsOfStatements"},
		{"doc-statement-key", `s.UUID != uuid`, `false`, "TestStatementForAnotherHoldThanItsKeyIsIgnored"},
		{"doc-delay-lock", `d.Name != lock`, `false`, "TestVectorsOfDelays"},
		{"doc-presence-large", `len(value) > maxPresenceBytes`, `false`, "TestPresenceIsReadAsFarAsPossible"},
		{"doc-presence-rules", `min(len(p.HeldBack), maxHeldBack)`, `len(p.HeldBack)`,
			"TestPresenceIsReadAsFarAsPossible"},
		{"key-field", `!lockrecord.IsFieldName(id)`, `false`, "TestVectorsOfKeys"},
		{"key-area", "if «strings.HasPrefix(segment, \".\")» {", `false`, "TestVectorsOfKeys"},
		{"key-tail", `ticket == tailName`, `false`, "TestVectorsOfKeys"},
		{"key-prefix", `strings.ContainsFunc(prefix, unicode.IsControl)`, `false`, "TestNewLayout"},
		{"name-slash", `strings.ReplaceAll(strings.ReplaceAll(name, "%", "%25"), "/", "%2F")`,
			`strings.ReplaceAll(name, "%", "%25")`, "TestVectorsOfNames"},
		{"name-escape", `EncodeName(name) != segment`, `false`, "TestVectorsOfNames"},
		{"name-dot", "strings.CutPrefix(segment, \".\"); «hidden»", `false`, "TestVectorsOfNames"},
		{"name-control", `strings.ContainsFunc(name, unicode.IsControl)`, `false`, "TestVectorsOfNames"},
		{"name-long", `len(name) > MaxNameBytes`, `false`, "TestVectorsOfNames"},
		{"instant-fraction", `len(fraction) > 9`, `false`, "TestVectorsOfTimes"},
		{"instant-digits", `len(whole) != secondDigits`, `false`, "TestVectorsOfTimes"},
		{"delay-most", `case «seconds > limit»:`, `false`, "TestVectorsOfRecords"},
		{"record-leftover", `f.ModRevision < d.record.Token`, `false`, "TestVectorsOfRecords"},
		{"record-document", `size > MaxDocumentBytes`, `false`, "TestVectorsOfNotes"},
		{"record-metadata", "«size > MaxRecordBytes» {\n\t\td.problem(FieldMetadata", `false`, "TestVectorsOfRecords"},
		{"task-slash", `case «strings.Contains(set, "/")»:`, `false`, "TestTaskNamesCollideWithNoLock"},
	}},
	{"internal/text", []fault{
		// Texts of others.
		{"globs", `case «afterStar >= 0»:`, `false`, "TestGlobsMatchWholeNames"},
		{"text-invisible", `!invisible(r)`, `true`, "TestVisibleShowsEveryByte"},
		{"text-print", `strconv.IsPrint(r)`, `true`, "TestVisibleShowsEveryByte"},
		{"text-marks", `marks <= maxMarks`, `true`, "TestVisibleShowsEveryByte"},
		{"text-backslash", `case «exact && r == '\\'»:`, `false`, "TestVisibleShowsEveryByte"},
		{"text-blank", `case «exact && ambiguousBlank(s, i)»:`, `false`, "TestVisibleShowsEveryByte"},
		{"text-cut", `utf8.RuneStart(s[n])`, `true`, "TestCutKeepsWholeCharacters"},
		{"label-long", `len(s) <= maxLabelBytes`, `true`, "TestLabels"},
		{"label-control", `(r < ' ' || r >= utf8.RuneSelf || r == 0x7f) && !unicode.IsGraphic(r)`, `false`,
			"TestLabels"},
		{"shell-dash", `strings.HasPrefix(word, "-")`, `false`, "TestWordsAreShellSafe"},
		{"shell-quote", `strings.TrimFunc(word, isPlain) != ""`, `false`, "TestWordsAreShellSafe"},
		{"shell-escape", `case «c == '\'' || c == '\\'»:`, `false`, "TestWordsAreShellSafe"},
		{"shell-control", `case «c < ' ' || c > '~'»:`, `false`, "TestWordsAreShellSafe"},
		{"instant-future", `case «t.After(now.Add(time.Second))»:`, `false`, "TestDurationsAreReadable"},
	}},
	{"internal/headline", []fault{
		{"command-host", `"ssh "+«text.ShellOperand(r.Hostname)»+" ps`, `r.Hostname`, "TestCommandsFollowThePlace"},
		{"steps-dead", `isGone := «r.ProvenDead()»`, `false`, "TestTheTable"},
	}},
	{"internal/diagnosis", []fault{
		{"heartbeat-progress", `«r.Alive.At.Before(r.AlertAt)»`, `true`, "TestDiagnosisIsNoMoreCertainThanTheFacts"},
		// What is said of a holder.
		{"diagnosis-proven", `case «r.ProvenDead()»:`, `false`, "TestDiagnosisIsNoMoreCertainThanTheFacts"},
		{"diagnosis-usual", `n < minPast`, `false`, "TestUsualNeedsFiveHolds"},
		{"diagnosis-other", `w.PID == r.PID`, `true`, "TestHolderWaitsWhereItsProcessQueues"},
		// What unlockers together will do.
		{"policy-watches", `f.Removes && «!removes(*p)»`, `false`, "TestFastestUnlockerDetermines"},
		{"policy-silent", `len(f.PolicyUnknown) == 0`, `true`, "TestFastestUnlockerDetermines"},
		{"policy-excluded", `len(f.exclusions) > maxExclusions`, `true`,
			"TestALockIsSafeOnlyIfEveryUnlockerExcludesIt"},
		// Free locks that nobody takes.
		{"free-listed", `!v.Synced`, `false`, "TestFind"},
		{"free-early", `v.Now < max(since, v.Followed)+MinFree`, `false`, "TestFind"},
		{"free-since", `b.since == since`, `true`, "TestUnclaimedLockStaysReportedUntilTaken"},
		// What no client leaves in etcd.
		{"odd-permits", `t.permits > t.limit`, `false`, neverLeft},
		{"odd-writer", `case «t.withPermits > 0 && t.readers > 0»:`, `false`, neverLeft},
		{"odd-delay", `!d.Leased`, `false`, neverLeft},
	}},
	{"internal/diagnosis/deadlock", []fault{
		// Processes that wait for each other.
		{"cycle-unknown", `!c.unknown`, `true`, "TestCycles"},
		{"cycle-reader", `t.stuck[h.who]`, `true`, "TestCycles"},
		{"cycle-under", `who, known := g.holders[uuid]; «known»`, `false && known`, "TestCycles"},
		{"cycle-share", `r.Share().LockName != lock`, `false`, "TestCycles"},
		{"cycle-permits", `len(permits) == len(c.permits)`, `true`, "TestCyclesMatchTheDefinition"},
		{"cycle-groups", `len(groups[0]) == len(among)`, `true`, "TestCyclesMatchTheDefinition"},
	}},
	{"internal/lockmetrics", []fault{
		// Series, which are as many as their names are bounded.
		{"series-names", `return «urgent»`, `all`, "TestOnlyLocksThatNeedAttentionHaveSeries"},
		{"series-most", `len(kept) == limit`, `false`,
			"TestMostUrgentLocksKeepTheirSeries"},
		{"series-taken", `!taken[key]`, `true`, "TestDuplicateLabelIsDroppedAndCounted"},
		{"series-listed", `!fresh.HeardAt.IsZero()`, `true`, "TestNoLockMetricsBeforeTheFirstList"},
		{"series-heard", `f.HeardAt.IsZero()`, `false`, "TestNoLockMetricsBeforeTheFirstList"},
		{"series-alarms", "«!known» {\n\t\treturn", `false`, "TestAlarmsAreExportedOnlyIfKnown"},
		{"series-recent", `b.recent.Len() >= b.limit`, `false`, "TestHoldsAreMeasuredByLockIfAllLocksHaveSeries"},
	}},
	{"internal/lockjson", []fault{
		// What the API and mutexctl say of a lock.
		{"json-urgent", `r.State.Urgency() < l.State.Urgency()`, `false`,
			"TestTheStateOfAWholeLockIsTheMostUrgent"},
	}},
	{"internal/etcdconn", []fault{
		// How programs reach etcd.
		{"etcd-secret", `strings.Contains(endpoint, "@")`, `false`, "TestBadSettingsAreRefused"},
		{"etcd-mixed", `given != scheme`, `false`, "TestBadSettingsAreRefused"},
		{"etcd-path", `strings.Trim(u.Path, "/") != ""`, `false`, "TestBadSettingsAreRefused"},
		{"etcd-ca", `!pool.AppendCertsFromPEM(pem)`, `false`, "TestBadSettingsAreRefused"},
		{"etcd-plain-user", `scheme == "http" && s.User != ""`, `false`, "TestDangerousSettingsCauseWarnings"},
		{"etcd-insecure", `if «s.InsecureSkipVerify» {`, `false`, "TestDangerousSettingsCauseWarnings"},
		{"etcd-expired", `c != nil && «time.Now().After(c.NotAfter)»`, `false`, "TestProveReportsWhatIsWrong"},
		{"etcd-clock", `strings.Contains(answer, "expired certificate")`, `false`,
			"TestCertificateMayBeExpiredByEtcdsClockAlone"},
		{"etcd-token", `!isTokenRefused(err)`, `true`, "TestCallsAndStreamsOutliveTheirToken"},
		{"etcd-problem", `if «t.logged[class]» {`, `false`, "TestProblemIsLoggedOnceUntilItIsOver"},
	}},
	{"internal/certificate", []fault{
		{"certificate-first", `c.NotAfter.Before(first.NotAfter)`, `false`, "TestMetricsFollowTheFile"},
		{"certificate-short", `min(renewalDue, c.NotAfter.Sub(c.NotBefore)/3)`, `renewalDue`,
			"TestWarningIsInTimeToRenew"},
	}},
	{"internal/flags", []fault{
		// Settings and their sources.
		{"flag-precedence", `if «f.Changed» {`, `false`, "TestPrecedenceIsFlagThenOwnVariableThenEtcdctlsThenDefault"},
		{"flag-own", `if «s.own» {`, `false`, "TestPasswordNeedsItsUser"},
		{"flag-status", `«err == nil» || root.Annotations[startedAnnotation]`, `true`,
			"TestUsageErrorsAreOneSentenceAndStatus2"},
		{"flag-started", `root.Annotations[startedAnnotation] != ""`, `false`, "TestRuntimeErrorIsNotAUsageError"},
	}},
	{"internal/daemon", []fault{
		// Starts and ends of the long-running programs.
		{"daemon-status", `errors.As(err, &coded)`, `false`, "TestExitStatusAndSentence"},
		{"daemon-part", `p.err == nil`, `true`, "TestFailedPartStopsTheOthersAtOnce"},
		{"daemon-draining", `r.draining.Load()`, `false`, "TestPartsStopInOrderAfterTheDelay"},
		{"daemon-unread", `len(s.sending) == maxScrapes`, `false`,
			"TestOldestStalledScrapeIsCutOff"},
		{"daemon-profiles", `o.Pprof`, `true`, "TestMetricsAreServedAndProfilesOnlyOnRequest"},
		{"daemon-same-port", `address == s.Address`, `false`, "TestBadWebSettingsAreRefused"},
	}},
	{"internal/cli", []fault{
		// Exit statuses, and what mutexctl refuses to do.
		{"exit-lost", `case «errors.Is(unlock, mutex.ErrNotHeld)»:`, `false`,
			"TestLostLockOverridesTheCommandsStatus"},
		{"exit-killed", `code == ExitOK`, `false`, "TestScripts/once"},
		{"exit-signal", `case «errors.As(err, &sig)»:`, `false`, "TestScripts/run-waits"},
		{"exit-not-found", `start.Missing`, `false`, "TestScripts/run"},
		{"check-critical", `case «exceeds(n, o.critAlerting)»:`, `false`, "TestScripts/check"},
		{"check-no-unlocker", "case «len(all) == 0»:", `false`, "TestScripts/check"},
		{"check-usage", `cmd.Name() != "check"`, `true`, "TestScripts/arguments"},
		{"force-other", `o.uuid != doc.UUID`, `false`, "TestScripts/force-unlock"},
		{"force-typed", `!slices.Contains(answers, typed.text)`, `false`, "TestScripts/terminal"},
		{"force-yes", `case «o.yes && o.uuid == ""»:`, `false`, "TestScripts/force-unlock"},
		{"force-terminal",
			"«!o.yes && !o.app.interactive()»:\n\t\treturn usageErrorf(\"there is no terminal to ask on: give --uuid",
			`false`, "TestScripts/force-unlock"},
		{"list-names", `case «o.format.String() == term.NameFormat»:`, `false`, "TestScripts/list"},
		{"once-status", `isPeriod || isClock`, `false`, "TestScripts/once"},
	}},
}
