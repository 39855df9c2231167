package mutants_test

const neverLeft = "TestWhatNoClientLeavesInEtcdIsFound"
const theWorst = "TestTheWorstIsSaidOfALock"

// readerSuites are what people and other programs are told, and the programs themselves.
var readerSuites = []suite{
	{"internal/protocol", []fault{
		// Keys and values that other clients wrote.
		{"doc-statement-large", "documents.go", `len(kv.Value) > metadata.MaxStatementBytes`, `false`,
			"TestVectorsOfStatements"},
		{"doc-statement-key", "documents.go", `s.UUID != uuid`, `false`,
			"TestAStatementThatNamesAnotherHoldThanItsKeyIsNotRead"},
		{"doc-delay-lock", "delay.go", `d.Lock != lock`, `false`, "TestVectorsOfDelays"},
		{"doc-presence-large", "presence.go", `len(value) > MaxPresenceBytes`, `false`,
			"TestAPresenceRecordIsReadAsFarAsItCanBe"},
		{"doc-presence-rules", "presence.go", `min(len(p.HeldBack), maxHeldBack)`, `len(p.HeldBack)`,
			"TestAPresenceRecordIsReadAsFarAsItCanBe"},
		{"key-field", "layout.go", `!metadata.IsFieldName(id)`, `false`, "TestVectorsOfKeys"},
		{"key-area", "layout.go", "if «strings.HasPrefix(segment, \".\")» {", `false`, "TestVectorsOfKeys"},
		{"key-tail", "layout.go", `ticket == tail`, `false`, "TestVectorsOfKeys"},
		{"key-prefix", "layout.go", `strings.ContainsFunc(prefix, unicode.IsControl)`, `false`, "TestNewLayout"},
		{"name-slash", "name.go", `case «c == '/'»:`, `false`, "TestVectorsOfNames"},
		{"name-escape", "name.go", `case «escape == "%2F"»:`, `false`, "TestVectorsOfNames"},
		{"name-dot", "name.go", `segment[0] == '.'`, `false`, "TestVectorsOfNames"},
		{"name-control", "../../pkg/metadata/name.go", `strings.ContainsFunc(name, unicode.IsControl)`, `false`,
			"TestVectorsOfNames"},
		{"name-long", "../../pkg/metadata/name.go", `len(name) > MaxNameBytes`, `false`, "TestVectorsOfNames"},
		{"instant-fraction", "../../pkg/metadata/time.go", `len(fraction) > 9`, `false`, "TestVectorsOfTimes"},
		{"instant-digits", "../../pkg/metadata/time.go", `len(whole) != secondDigits`, `false`, "TestVectorsOfTimes"},
		{"delay-most", "../../pkg/metadata/documents.go", `case «seconds > most»:`, `false`, "TestVectorsOfRecords"},
		{"record-leftover", "../../pkg/metadata/record.go", `f.ModRevision < r.Token`, `false`, "TestVectorsOfRecords"},
		{"record-document", "../../pkg/metadata/decode.go", `len(f.Value) > MaxDocumentBytes`, `false`,
			"TestVectorsOfWhatOthersWrite"},
		{"task-slash", "jobs.go", `strings.Contains(set, "/")`, `false`, "TestTasksHaveNamesThatShareNoLock"},
	}},
	{"internal/text", []fault{
		// Texts of others.
		{"globs", "shell.go", `strings.HasSuffix(s, part)`, `strings.Contains(s, part)`,
			"TestGlobsOfASearchKnowOnlyTheAsterisk"},
		{"text-invisible", "visible.go", `!invisible(r)`, `true`, "TestVisibleShowsEveryByte"},
		{"text-print", "visible.go", `strconv.IsPrint(r)`, `true`, "TestVisibleShowsEveryByte"},
		{"text-marks", "visible.go", `marks <= maxMarks`, `true`, "TestVisibleShowsEveryByte"},
		{"text-backslash", "visible.go", `case «exact && r == '\\'»:`, `false`, "TestVisibleShowsEveryByte"},
		{"text-blank", "visible.go", `case «exact && ambiguousBlank(s, i)»:`, `false`, "TestVisibleShowsEveryByte"},
		{"text-cut", "visible.go", `utf8.RuneStart(s[n])`, `true`, "TestNoCharacterIsCutInTwo"},
		{"label-long", "label.go", `len(s) > maxLabelBytes`, `false`, "TestLabels"},
		{"label-control", "label.go", `(r < ' ' || r >= utf8.RuneSelf || r == 0x7f) && !unicode.IsGraphic(r)`, `false`,
			"TestLabels"},
		{"shell-dash", "shell.go", `strings.HasPrefix(word, "-")`, `false`, "TestWordsAreSafeInAShell"},
		{"shell-quote", "shell.go", `strings.TrimFunc(word, isPlain) != ""`, `false`, "TestWordsAreSafeInAShell"},
		{"shell-escape", "shell.go", `case «c == '\'' || c == '\\'»:`, `false`, "TestWordsAreSafeInAShell"},
		{"shell-control", "shell.go", `case «c < ' ' || c > '~'»:`, `false`, "TestWordsAreSafeInAShell"},
		{"glob-utf8", "shell.go", `!utf8.ValidString(pattern)`, `false`, "TestGlobsMatchWholeNames"},
		{"instant-future", "durations.go", `case «t.After(now.Add(time.Second))»:`, `false`,
			"TestTimesAreWrittenAsPeopleReadThem"},
	}},
	{"internal/diagnosis", []fault{
		// What is said of a holder.
		{"diagnosis-proven", "diagnosis.go", `case «r.Proven()»:`, `false`,
			"TestADiagnosisIsNeverMoreCertainThanTheFacts"},
		{"diagnosis-usual", "facts.go", `n < minPast`, `false`, "TestUsualNeedsFiveHolds"},
		{"diagnosis-other", "facts.go", `w.PID != r.PID`, `false`,
			"TestAHolderWaitsForTheLockInWhoseLineItsProcessStands"},
	}},
	{"internal/diagnosis/fate", []fault{
		// What unlockers together will do.
		{"fate-watches", "fate.go", `f.Removes && «!removes(*p)»`, `false`,
			"TestTogetherUnlockersAreAsQuickAsTheQuickest"},
		{"fate-silent", "fate.go", `len(f.Silent) == 0`, `true`, "TestTogetherUnlockersAreAsQuickAsTheQuickest"},
		{"fate-excluded", "fate.go", `len(f.exclusions) > maxExclusions`, `true`,
			"TestALockIsSafeOnlyIfEveryUnlockerExcludesIt"},
	}},
	{"internal/diagnosis/deadlock", []fault{
		// Processes that wait for each other.
		{"cycle-unknown", "graph.go", `!c.unknown`, `true`, "TestCycles"},
		{"cycle-reader", "cycle.go", `«t.stuck(h.who)» && (since`, `true`, "TestCycles"},
		{"cycle-share", "graph.go", `kindOf(r) != ""`, `true`, "TestCycles"},
		{"cycle-permits", "graph.go", `s.count(lock).permits == len(c.permits)`, `true`,
			"TestAnyWorldAgainstTheDefinition"},
		{"cycle-groups", "graph.go", `len(groups[0]) == len(among)`, `true`, "TestAnyWorldAgainstTheDefinition"},
	}},
	{"internal/diagnosis/unclaimed", []fault{
		// Free locks that nobody takes.
		{"free-listed", "unclaimed.go", `!v.Synced`, `false`, "TestFind"},
		{"free-early", "unclaimed.go", `wait > 0`, `false`, "TestFind"},
		{"free-since", "unclaimed.go", `b.since == since`, `true`, "TestWhatWasFoundStaysFoundUntilSomebodyTakesIt"},
	}},
	{"internal/diagnosis/inconsistent", []fault{
		// What no client leaves in etcd.
		{"odd-permits", "inconsistent.go", `t.permits > t.limit`, `false`, neverLeft},
		{"odd-writer", "inconsistent.go", `case «t.withPermits > 0 && t.readers > 0»:`, `false`, neverLeft},
		{"odd-delay", "inconsistent.go", `!d.Leased`, `false`, neverLeft},
	}},
	{"internal/diagnosis/alerttext", []fault{
		// One line for each lock.
		{"worst-abandoned", "alerttext.go", `case «!v.AbandonedAt.IsZero()»:`, `false`, theWorst},
		{"worst-expired", "alerttext.go", `case «v.State == staleness.Expired»:`, `false`, theWorst},
		{"worst-clock", "alerttext.go", `case «v.ClockOff != 0»:`, `false`, theWorst},
	}},
	{"internal/alertpush", []fault{
		// What Alertmanager is told, and when it is over.
		{"alert-critical", "alert.go", `p.c.Removes && !p.excluded(r.Name)`, `true`,
			"TestALockThatStaysPastItsDeadlineIsCriticalWhereLocksAreRemoved"},
		{"alert-malformed", "alert.go", `seen < malformedFor`, `false`,
			"TestWhatIsToldOfALockBeforeItsTimeComes"},
		{"alert-cycle-early", "alert.go", `now.Before(due)`, `false`,
			"TestProcessesThatWaitForEachOtherAreToldAfterAMinuteAndThatItIsOver"},
		{"alert-resolved", "alertset.go", `now.Sub(e.ends) >= resolvedFor`, `false`,
			"TestALockIsToldWhenItsTimeComesAndAgainEveryMinuteAndThatItIsOver"},
		{"alert-cut", "alertset.go", `e != nil && «e.ends.IsZero()»`, `false`,
			"TestTooManyAlertsAreCutAndNoneOfThemIsEndedForThat"},
		{"alert-removed", "pusher.go", `p.c.Now().Sub(ending.EndedAt.Time) >= removedFor`, `true`,
			"TestThatALockWasRemovedIsToldForAQuarterOfAnHour"},
		{"alert-next", "annotations.go", `case «p.excluded(n.record.Name)»:`, `false`,
			"TestAnAlertTellsWhatHappensNext"},
		{"alert-newest", "peer.go", `!newer`, `false`, "TestWhileAlertmanagerIsAwayTheNewestWordIsKept"},
		{"alert-refused", "peer.go", `resp.StatusCode == http.StatusBadRequest`, `false`,
			"TestARequestThatIsRefusedIsNotSentAgainAsItWas"},
		{"alert-too-large", "peer.go", `resp.StatusCode == http.StatusRequestEntityTooLarge`, `false`,
			"TestARequestThatIsRefusedIsNotSentAgainAsItWas"},
		{"alert-label", "peer.go", `«value != ""» || name`, `true`,
			"TestALockIsToldWhenItsTimeComesAndAgainEveryMinuteAndThatItIsOver"},
	}},
	{"internal/lockmetrics", []fault{
		// Series, which are as many as their names are bounded.
		{"series-names", "descs.go", `state != staleness.Held`, `true`, "TestWhoLooksAtLocksIsCounted"},
		{"series-most", "descs.go", `overdue(j, s.kept[s.limit-1]) >= 0`, `true`,
			"TestTheMostOverdueLocksKeepTheirSeriesWhenThereAreTooMany"},
		{"series-taken", "locks.go",
			"if «taken[name]» {\n\t\t\tcontinue\n\t\t}\n\t\ttaken[name] = true\n\t\tgauge(ch, c.d.lockState",
			`false`, "TestALockThatTakesAnothersLabelIsDroppedAndCounted"},
		{"series-listed", "collector.go", `!s.Listed`, `false`, "TestNothingIsSaidAboutLocksBeforeTheFirstList"},
		{"series-alarms", "collector.go", `!known`, `false`, "TestAlarmsAreShownOnlyWhenTheyAreKnown"},
		{"series-recent", "bylock.go", `b.recent.Len() >= b.limit`, `false`,
			"TestHoldsAreMeasuredByLockWhereAllLocksHaveSeries"},
	}},
	{"internal/lockjson", []fault{
		// What the API and mutexctl say of a lock.
		{"json-urgent", "lockjson.go", `holder.State.Urgency() < l.State.Urgency()`, `false`,
			"TestTheStateOfAWholeLockIsTheMostUrgent"},
	}},
	{"internal/etcdconn", []fault{
		// How programs reach etcd.
		{"etcd-secret", "settings.go", `strings.Contains(endpoint, "@")`, `false`,
			"TestSettingsThatCannotWorkAreRefused"},
		{"etcd-mixed", "settings.go", `t.scheme != all[0].scheme`, `false`, "TestSettingsThatCannotWorkAreRefused"},
		{"etcd-path", "settings.go", `strings.Trim(u.Path, "/") != ""`, `false`,
			"TestSettingsThatCannotWorkAreRefused"},
		{"etcd-ca", "settings.go", `!pool.AppendCertsFromPEM(pem)`, `false`, "TestSettingsThatCannotWorkAreRefused"},
		{"etcd-plain-user", "etcdconn.go", `scheme == "http" && s.User != ""`, `false`,
			"TestDangerousSettingsAreWarnedOf"},
		{"etcd-insecure", "etcdconn.go", `if «s.InsecureSkipVerify» {`, `false`, "TestDangerousSettingsAreWarnedOf"},
		{"etcd-rotated", "etcdconn.go", `conn.files != now`, `false`,
			"TestOnlyConnectionsThatWereMadeWithOtherFilesAreRenewed"},
		{"etcd-token", "security.go", `!refused(err)`, `true`, "TestCallsAndStreamsOutliveTheirToken"},
		{"etcd-trouble", "explain.go", `if «t.told[class]» {`, `false`, "TestTroubleIsToldOnceUntilItIsOver"},
	}},
	{"internal/flags", []fault{
		// Settings and their sources.
		{"flag-precedence", "environment.go", `if «f.Changed» {`, `false`,
			"TestPrecedenceIsFlagThenOwnVariableThenEtcdctlsThenDefault"},
		{"flag-own", "environment.go", `if «s.own» {`, `false`, "TestPasswordGoesWithItsUser"},
		{"flag-status", "errors.go", `err == nil || started`, `true || started`,
			"TestMistakesAreOneSentenceAndStatus2"},
		{"flag-started", "errors.go", `err == nil || «started»`, `false`, "TestErrorOfARunningCommandIsNotOneOfUsage"},
	}},
	{"internal/flags/clusterfile", []fault{
		// Files that name clusters.
		{"clusters-twice", "clusterfile.go",
			`slices.ContainsFunc(list[:i], func(c Cluster) bool { return c.Name == e.Name })`, `false`,
			"TestWrongFileIsRefusedInOneSentence"},
		{"clusters-second", "clusterfile.go", `err := decoder.Decode(new(yaml.Node)); «!errors.Is(err, io.EOF)»`,
			`false && err == nil`, "TestWrongFileIsRefusedInOneSentence"},
		{"clusters-path", "clusterfile.go", `filepath.IsAbs(file)`, `true`, "TestFileNamesClusters"},
	}},
	{"internal/daemon", []fault{
		// Starts and ends of the long-running programs.
		{"daemon-status", "daemon.go", `errors.As(err, &coded)`, `false`, "TestExitStatusAndSentence"},
		{"daemon-part", "daemon.go", `p.err == nil`, `true`, "TestFailedPartStopsTheOthersAtOnce"},
		{"daemon-draining", "server.go", `if «draining» {`, `false`, "TestPartsStopInOrderAfterTheDelay"},
		{"daemon-unread", "scrapes.go", `len(s.unread) == maxScrapes`, `false`,
			"TestOfTooManyScrapesThatReadNothingTheOldestIsCutOff"},
		{"daemon-profiles", "server.go", `o.Pprof`, `true`, "TestMetricsAreServedAndProfilesOnlyWhenWanted"},
		{"daemon-same-port", "server.go", `other == s.Address`, `false`, "TestWebSettingsThatCannotWorkAreRefused"},
	}},
	{"internal/cli", []fault{
		// Exit statuses, and what mutexctl refuses to do.
		{"exit-lost", "job.go", `case «errors.Is(unlock, mutex.ErrNotHeld)»:`, `false`,
			"TestACommandWhoseLockWasLostUnderItEndsLikeThat"},
		{"exit-killed", "job.go", `code == ExitOK`, `false`, "TestScripts/once"},
		{"exit-signal", "exit.go", `case «errors.As(err, &sig)»:`, `false`, "TestScripts/wait"},
		{"exit-not-found", "exit.go", `start.Missing`, `false`, "TestScripts/run"},
		{"check-critical", "health.go", `case «exceeds(n, o.critAlerting)»:`, `false`, "TestScripts/check"},
		{"check-no-unlocker", "health.go", "case «len(all) == 0»:", `false`, "TestScripts/check"},
		{"check-usage", "check.go", `cmd.Name() != "check"`, `true`, "TestScripts/check"},
		{"force-other", "operator.go", `o.uuid != doc.UUID`, `false`, "TestScripts/force-unlock"},
		{"force-typed", "forceunlock.go", `typed != doc.Name`, `false`, "TestScripts/terminal"},
		{"force-yes", "forceunlock.go", `case «o.yes && o.uuid == ""»:`, `false`, "TestScripts/force-unlock"},
		{"force-terminal", "forceunlock.go", `case «!o.yes && !o.app.interactive()»:`, `false`,
			"TestScripts/force-unlock"},
		{"list-names", "list.go", `o.format.String() != term.NameFormat`, `true`, "TestScripts/list"},
		{"once-status", "once.go", `isPeriod || isClock`, `false`, "TestScripts/once"},
	}},
	{"internal/cli/holdtimes", []fault{
		// How long locks were held.
		{"held-other", "locks.go", `h.byOther`, `false`, "TestWhatIsKnownOfALock"},
		{"held-unknown", "locks.go", `case «!known»:`, `false`, "TestWhatIsKnownOfALock"},
		{"held-few", "suggest.go", `len(l.Held) < MinHolds`, `false`, "TestTooFewHoldsSuggestNothing"},
	}},
}
