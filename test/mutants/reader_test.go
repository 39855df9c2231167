package mutants_test

// readerSuites are what people and other programs are told, and the programs themselves.
func readerSuites() []suite {
	return []suite{
		in("internal/protocol", documents()),
		in("internal/text", escapes()),
		in("internal/diagnosis", diagnoses()),
		in("internal/diagnosis/fate", fates()),
		in("internal/diagnosis/deadlock", deadlocks()),
		in("internal/diagnosis/unclaimed", unclaimed()),
		in("internal/diagnosis/inconsistent", inconsistencies()),
		in("internal/diagnosis/alerttext", alertTexts()),
		in("internal/alertpush", alerts()),
		in("internal/lockmetrics", metrics()),
		in("internal/lockjson", members()),
		in("internal/etcdconn", connections()),
		in("internal/flags", flags()),
		in("internal/flags/clusterfile", clusterFiles()),
		in("internal/daemon", daemons()),
		in("internal/cli", commands()),
		in("internal/cli/holdtimes", holdTimes()),
	}
}

// documents are keys and values that other clients wrote.
func documents() []fault {
	return []fault{
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
	}
}

// escapes are texts of others.
func escapes() []fault {
	return []fault{
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
	}
}

// diagnoses are what is said of a holder.
func diagnoses() []fault {
	return []fault{
		{"diagnosis-proven", "diagnosis.go", `case «r.Proven()»:`, `false`,
			"TestADiagnosisIsNeverMoreCertainThanTheFacts"},
		{"diagnosis-usual", "facts.go", `n < minPast`, `false`, "TestUsualNeedsFiveHolds"},
		{"diagnosis-other", "facts.go", `w.PID != r.PID`, `false`,
			"TestAHolderWaitsForTheLockInWhoseLineItsProcessStands"},
	}
}

// fates are what unlockers together will do.
func fates() []fault {
	return []fault{
		{"fate-watches", "fate.go", `f.Removes && «!removes(*p)»`, `false`,
			"TestTogetherUnlockersAreAsQuickAsTheQuickest"},
		{"fate-silent", "fate.go", `len(f.Silent) == 0`, `true`, "TestTogetherUnlockersAreAsQuickAsTheQuickest"},
		{"fate-excluded", "fate.go", `len(f.exclusions) > maxExclusions`, `true`,
			"TestALockIsSafeOnlyIfEveryUnlockerExcludesIt"},
	}
}

// deadlocks are processes that wait for each other.
func deadlocks() []fault {
	return []fault{
		{"cycle-unknown", "graph.go", `!c.unknown`, `true`, "TestCycles"},
		{"cycle-reader", "cycle.go", `«t.stuck(h.who)» && (since`, `true`, "TestCycles"},
		{"cycle-share", "graph.go", `kindOf(r) != ""`, `true`, "TestCycles"},
		{"cycle-permits", "graph.go", `s.count(lock).permits == len(c.permits)`, `true`,
			"TestAnyWorldAgainstTheDefinition"},
		{"cycle-groups", "graph.go", `len(groups[0]) == len(among)`, `true`, "TestAnyWorldAgainstTheDefinition"},
	}
}

// unclaimed are free locks that nobody takes.
func unclaimed() []fault {
	return []fault{
		{"free-listed", "unclaimed.go", `!v.Synced`, `false`, "TestFind"},
		{"free-early", "unclaimed.go", `wait > 0`, `false`, "TestFind"},
		{"free-since", "unclaimed.go", `b.since == since`, `true`, "TestWhatWasFoundStaysFoundUntilSomebodyTakesIt"},
	}
}

// inconsistencies are what no client leaves in etcd.
func inconsistencies() []fault {
	const found = "TestWhatNoClientLeavesInEtcdIsFound"
	return []fault{
		{"odd-permits", "inconsistent.go", `t.permits > t.limit`, `false`, found},
		{"odd-writer", "inconsistent.go", `case «t.withPermits > 0 && t.readers > 0»:`, `false`, found},
		{"odd-delay", "inconsistent.go", `!d.Leased`, `false`, found},
	}
}

// alertTexts are one line for each lock.
func alertTexts() []fault {
	const worst = "TestTheWorstIsSaidOfALock"
	return []fault{
		{"worst-abandoned", "alerttext.go", `case «!v.AbandonedAt.IsZero()»:`, `false`, worst},
		{"worst-expired", "alerttext.go", `case «v.State == staleness.Expired»:`, `false`, worst},
		{"worst-clock", "alerttext.go", `case «v.ClockOff != 0»:`, `false`, worst},
	}
}

// alerts are what Alertmanager is told, and when it is over.
func alerts() []fault {
	return []fault{
		{"alert-critical", "alert.go", `p.c.Removes && !p.excluded(r.Name)`, `true`,
			"TestALockThatStaysPastItsDeadlineIsCriticalWhereLocksAreRemoved"},
		{"alert-malformed", "alert.go", `seen < malformedFor`, `false`,
			"TestALockWithoutReadableDeadlinesIsToldAfterAQuarterOfAnHour"},
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
	}
}

// metrics are series, which are as many as their names are bounded.
func metrics() []fault {
	return []fault{
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
	}
}

// members are what the API and mutexctl say of a lock.
func members() []fault {
	return []fault{
		{"json-urgent", "lockjson.go", `holder.State.Urgency() < l.State.Urgency()`, `false`,
			"TestTheStateOfAWholeLockIsTheMostUrgent"},
	}
}

// connections are how programs reach etcd.
func connections() []fault {
	return []fault{
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
	}
}

// flags are settings and their sources.
func flags() []fault {
	return []fault{
		{"flag-precedence", "environment.go", `if «f.Changed» {`, `false`,
			"TestPrecedenceIsFlagThenOwnVariableThenEtcdctlsThenDefault"},
		{"flag-own", "environment.go", `if «s.own» {`, `false`, "TestPasswordGoesWithItsUser"},
		{"flag-status", "errors.go", `err == nil || started`, `true || started`,
			"TestMistakesAreOneSentenceAndStatus2"},
		{"flag-started", "errors.go", `err == nil || «started»`, `false`,
			"TestErrorOfARunningCommandIsNotOneOfUsage"},
	}
}

// clusterFiles are files that name clusters.
func clusterFiles() []fault {
	return []fault{
		{"clusters-twice", "clusterfile.go",
			`slices.ContainsFunc(list[:i], func(c Cluster) bool { return c.Name == e.Name })`, `false`,
			"TestWrongFileIsRefusedInOneSentence"},
		{"clusters-second", "clusterfile.go", `err := decoder.Decode(new(yaml.Node)); «!errors.Is(err, io.EOF)»`,
			`false && err == nil`, "TestWrongFileIsRefusedInOneSentence"},
		{"clusters-path", "clusterfile.go", `filepath.IsAbs(file)`, `true`, "TestFileNamesClusters"},
	}
}

// daemons are starts and ends of the long-running programs.
func daemons() []fault {
	return []fault{
		{"daemon-status", "daemon.go", `errors.As(err, &coded)`, `false`, "TestExitStatusAndSentence"},
		{"daemon-part", "daemon.go", `p.err == nil`, `true`, "TestFailedPartStopsTheOthersAtOnce"},
		{"daemon-draining", "server.go", `if «draining» {`, `false`, "TestPartsStopInOrderAfterTheDelay"},
		{"daemon-unread", "scrapes.go", `len(s.unread) == maxScrapes`, `false`,
			"TestOfTooManyScrapesThatReadNothingTheOldestIsCutOff"},
		{"daemon-profiles", "server.go", `o.Pprof`, `true`, "TestMetricsAreServedAndProfilesOnlyWhenWanted"},
		{"daemon-same-port", "server.go", `other == s.Address`, `false`, "TestWebSettingsThatCannotWorkAreRefused"},
	}
}

// commands are exit statuses, and what mutexctl refuses to do.
func commands() []fault {
	return []fault{
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
	}
}

// holdTimes are how long locks were held.
func holdTimes() []fault {
	return []fault{
		{"held-other", "locks.go", `h.byOther`, `false`, "TestAHoldThatSomebodyElseEndedIsNotMeasured"},
		{"held-unknown", "locks.go", `case «!known»:`, `false`, "TestWhatNoClockKnowsIsNotMeasured"},
		{"held-few", "suggest.go", `len(l.Held) < MinHolds`, `false`, "TestTooFewHoldsSuggestNothing"},
	}
}
