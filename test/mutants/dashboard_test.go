package mutants_test

// dashboardSuites are who may see and do what, and that nothing shown is more than text.
func dashboardSuites() []suite {
	return []suite{
		in("internal/dashboard", headers(), doors(), callers(), holds(), texts(), lists(), past(), several()),
		in("internal/dashboard/locks", judgements()),
	}
}

// headers are what every answer carries, and requests of other sites.
func headers() []fault {
	return []fault{
		{"inline-style", "headers.go", `fmt.Sprintf(policy, "'none'")`,
			`strings.Replace(fmt.Sprintf(policy, "'none'"), "style-src", "style-src 'unsafe-inline'", 1)`,
			"TestEveryAnswerCarriesTheSecurityHeaders"},
		{"cached", "headers.go", `"no-store"`, `"no-cache"`, "TestEveryAnswerCarriesTheSecurityHeaders"},
		{"panic-ends", "headers.go", `cause == http.ErrAbortHandler`, `true`,
			"TestEveryAnswerCarriesTheSecurityHeaders"},
		{"framed-form", "headers.go", `d.letsIn(r.URL.Path)`, `false`, "TestTheConfirmationIsNeverFramed"},
		{"framed-delay", "headers.go", `«o.LetsIn» && path`, `o.LetsIn && !strings.Contains(path, "delay")`,
			"TestTheConfirmationIsNeverFramed"},
		{"framed-all", "headers.go", `strings.Join(d.site.Config.FrameAncestors, " ")`, `"*"`,
			"TestOnlyNamedPagesMayFrameOurs"},
		{"ancestor", "setup/config.go", `strings.ContainsAny(origin, " ;,'*")`, `false`,
			"TestOnlyNamedPagesMayFrameOurs"},
		{"plain-hsts", "headers.go", `r.TLS != nil`, `true`, "TestBrowsersAreToldToComeByTLSWhereItIsOurs"},
		{"read-elsewhere", "headers.go", `!d.mayRead(r.Header)`, `false`, "TestAnotherSiteMayOnlyLeadHere"},
		{"read-in-frame", "headers.go", `return «len(d.site.Config.FrameAncestors) > 0»`, `true`,
			"TestAnotherSiteMayOnlyLeadHere"},
		{"write-elsewhere", "headers.go", `protection.Handler(next)`, `next`,
			"TestEveryAnswerCarriesTheSecurityHeaders"},
		{"own-origin", "headers.go", `origin := «d.site.URLs.Origin»`, `""`, "TestOriginOfTheExternalURLMayPost"},
		{"any-host", "door.go", `h[normalHost(host)]`, `true`, "TestOnlyHostsThatAreOursAreAnswered"},
	}
}

// doors are limits of requests and answers, and addresses below a prefix.
func doors() []fault {
	return []fault{
		{"body-first", "answer.go", `refused := «o.May(made.Caller)»`, `nil`,
			"TestWhoMayNotIsAnsweredBeforeTheBodyIsRead"},
		{"body-left", "answer.go", `r.ContentLength != 0`, `false`, "TestWhoMayNotIsAnsweredBeforeTheBodyIsRead"},
		{"body-slow", "answer.go", `«bodyWithin»)`, `time.Hour`, "TestWhoMayNotIsAnsweredBeforeTheBodyIsRead"},
		{"body-announced", "answer.go", `r.ContentLength > maxBody`, `false`,
			"TestWhoMayNotIsAnsweredBeforeTheBodyIsRead"},
		{"body-large", "answer.go", `len(body) > maxBody`, `false`, "TestWhoMayNotIsAnsweredBeforeTheBodyIsRead"},
		{"body-type", "answer.go", `!strings.EqualFold(got, kind)`, `got == ""`, "TestActionsAreRefused"},
		{"kept-lost", "answer.go", `«refused != nil» && kind`, `false`, "TestWhoMayNotGetsBackWhatWasTyped"},
		{"cut-short", "stream.go", `errors.Join(err, pieces.Flush()) != nil`, `false`,
			"TestATableThatCouldNotBeSentWholeDoesNotPassForWhole"},
		{"one-piece", "stream.go", `«pieceSize»)`, `64 << 20`, "TestATableIsSentInPieces"},
		{"busy", "dashboard.go", `«maxRequests»)`, `1 << 20`, "TestTooManyAtOnceAreRefused"},
		{"gzip-refused", "stream.go", `weight == ""`, `true`, "TestAssetsArePackedAndForEver"},
		{"asset-stale", "headers.go", `chi.URLParam(r.Request, "fingerprint") != d.assets.fingerprint`, `false`,
			"TestEveryAnswerCarriesTheSecurityHeaders"},
		{"prefix-asset", "site/urls.go", `u.Prefix + "assets/"`, `"/assets/"`, "TestEveryLinkWorksBelowAnyPrefix"},
		{"prefix-link", "site/urls.go", `u.Prefix + path`, `"/" + path`, "TestEveryLinkWorksBelowAnyPrefix"},
		{"prefix-climbs", "door.go", `part == ".."`, `false`, "TestConfigurationThatCannotWorkIsRefused"},
		{"prefix-bare", "dashboard.go", `path+"/" == d.route`, `false`,
			"TestBareRootAndPrefixWithoutSlashFindTheList"},
		{"url-user", "door.go", `u.User != nil`, `false`, "TestConfigurationThatCannotWorkIsRefused"},
		{"tag-part", "site/answer.go", `strings.TrimPrefix(tag, "W/") == strings.TrimPrefix(etag, "W/")`,
			`strings.Contains(tag, strings.TrimPrefix(etag, "W/"))`, "TestTagsAreComparedWhole"},
	}
}

// callers are who asks, and what they may do.
func callers() []fault {
	return []fault{
		{"any-permission", "answer.go", `c.site.Admit(made.Caller, need)`, `c.site.Admit(made.Caller, access.View)`,
			"TestEveryRouteWantsItsPermission"},
		{"no-permission", "site/request.go", `if «c.MaySome(need)»`, `true`, "TestEveryRouteWantsItsPermission"},
		{"told-outside", "site/page.go", `!c.May(access.View)`, `false`, "TestFlagsThatHelpAnAttackerAreForTheAuditor"},
		{"without-view", "access/identity.go", `p == Anybody || «slices.Contains(c.Rights, View)»`, `true`,
			"TestPermissionsCanBeForSomeClusters"},
		{"any-owner", "access/permissions.go", `text.Matches(*pattern, owner)`, `true`,
			"TestPermissionsForTheLocksOfOneOwnerEndThere"},
		{"owner-unlock", "actions/perform.go", `o.site.AdmitFor(r.Caller, o.need(), d.Owner)`, `nil`,
			"TestPermissionsForTheLocksOfOneOwnerEndThere"},
		{"untrusted-proxy", "access/identity.go", `!c.trusted(peer)`, `false`, "TestCallerIsWhoTheSourceSays"},
		{"said-twice", "access/identity.go", `len(names) > 1`, `false`, "TestCallerIsWhoTheSourceSays"},
		{"groups-twice", "access/identity.go", `len(listed) > 1`, `false`, "TestCallerIsWhoTheSourceSays"},
		{"odd-name", "access/identity.go", `strings.ContainsFunc(name, odd)`, `false`, "TestCallerIsWhoTheSourceSays"},
		{"unverified", "access/identity.go", `len(r.TLS.VerifiedChains) == 0`, `false`, "TestCallerIsWhoTheSourceSays"},
		{"unknown-user", "access/identity.go", `!c.KnownUser(name)`, `false`, "TestCallerIsWhoTheSourceSays"},
		{"forwarded", "access/identity.go", `!c.trusted(client)`, `false`, "TestForceUnlockTellsWhoDidItToWhom"},
		{"wide-proxies", "access/config.go", `proxy.Bits() < widest4`, `false`, "TestProxiesAreNotHalfOfTheInternet"},
		{"wide-proxies-6", "access/config.go", `proxy.Bits() < widest6`, `false`, "TestProxiesAreNotHalfOfTheInternet"},
		{"old-permissions", "access/config.go", `c.Reread()`, `c.Permissions`, "TestPermissionsThatChangedCountAtOnce"},
		{"traces-shown", "door.go", `d.site.Config.HideBacktraces`, `false`,
			"TestBacktracesNeedTheirPermissionWhereverTheyStand"},
		{"trace-field", "pages/lock_facts.go", `!c.MayFor(access.Backtrace, owner)`, `false`,
			"TestBacktracesNeedTheirPermissionWhereverTheyStand"},
		{"trace-json", "api/lock.go", `r.Caller.MayFor(access.Backtrace, lock.Document.Owner)`, `true`,
			"TestBacktracesNeedTheirPermissionWhereverTheyStand"},
		{"trace-form", "actions/page.go", `r.Caller.MayFor(access.Backtrace, row.Owner)`, `true`,
			"TestForceUnlockTellsWhoDidItToWhom"},
		{"secret-flags", "pages/status.go", `!s.Public`, `false`, "TestFlagsThatHelpAnAttackerAreForTheAuditor"},
	}
}

// holds are what keeps an operator from doing something to another hold than the one that was seen.
func holds() []fault {
	return []fault{
		{"other-uuid", "actions/perform.go", `document.UUID != asked.Hold`, `false`, "TestActionsByTheAPI"},
		{"other-token", "actions/perform.go", `document.Token != asked.Token`, `false`, "TestActionsAreRefused"},
		{"other-address", "actions/page.go", `form.Get("hold") != asked.Hold`, `false`, "TestActionsAreRefused"},
		{"untyped", "actions/page.go", `name != asked.Name`, `false`, "TestActionsAreRefused"},
		{"shown-name", "actions/page.go", `name != text.Visible(asked.Name)`, `true`, "TestForceUnlockOfHostileNames"},
		{"stale", "actions/perform.go", `notStale(r)`, `nil`, "TestActionsAreRefused"},
		{"reason-short", "actions/perform.go", `n < minReason`, `false`, "TestActionsAreRefused"},
		{"reason-long", "actions/perform.go", `n > site.MaxReason`, `false`, "TestActionsAreRefused"},
		{"reason-odd", "actions/perform.go", `!isPlain(r.Reason)`, `false`, "TestActionsAreRefused"},
		{"ticket-long", "actions/perform.go", `utf8.RuneCountInString(r.Ticket) > site.MaxTicket`, `false`,
			"TestActionsAreRefused"},
		{"ticket-odd", "actions/perform.go", `!isPlain(r.Ticket)`, `false`, "TestActionsAreRefused"},
		{"rate-each", "actions/operation.go", `own >= rateEach`, `false`, "TestForceUnlocksHaveARate"},
		{"rate-all", "actions/operation.go", `len(r.done) >= rateAll`, `false`, "TestForceUnlocksHaveARate"},
		{"rate-nothing", "actions/perform.go", `err != nil && !errors.Is(err, protocol.ErrUnknown)`, `false`,
			"TestRateGivesBackWhatDidNothing"},
		{"rate-of-all", "actions/operation.go", `t.who == who`, `true`, "TestTriesThatDoNothingTakeNothingFromOthers"},
		{"of-the-dead", "actions/perform.go", `row != nil`, `false`, "TestActionsAreRefused"},
		{"overtaken", "actions/perform.go", `o.overtaken(r.Caller.Name, d, asked)`, `nil`,
			"TestWhatOthersDidSinceAPersonLookedIsShownFirst"},
		{"alive-counts", "actions/mark.go", `d.Alive == nil`, `true`,
			"TestWhatOthersDidSinceAPersonLookedIsShownFirst"},
		{"unknown-there", "actions/perform.go", `err != nil || there`, `false`,
			"TestForceUnlockOfUnknownOutcomeIsLookedAtAgain"},
		{"unknown-ours", "actions/perform.go", `ending.By == ours.By`, `true`,
			"TestForceUnlockOfUnknownOutcomeIsLookedAtAgain"},
		{"no-delay", "actions/perform.go", `record.DelayOf(o.site.Config.Fate().Policy.LockDelay)`, `0`,
			"TestAForceUnlockHasTheLockDelayOfTheRecordOrTheDefault"},
		{"other-delay", "actions/delay.go", `d.Revision != asked.Revision`, `false`,
			"TestActionsAreRefused"},
		{"delay-token", "actions/delay.go", `d.Token != asked.Token`, `false`, "TestActionsByTheAPI"},
		{"delay-owner", "actions/delay.go",
			"«o.site.AdmitFor(r.Caller, o.need(), d.Owner)»; err != nil {\n\t\treturn action", `nil`,
			"TestActionsAreRefused"},
		{"time-fraction", "actions/perform.go", `d%time.Second != 0`, `false`, "TestActionsAreRefused"},
		{"two-times", "actions/page.go", `own != asked.More`, `false`, "TestTimesMayBeTypedAsThePageWritesThem"},
		{"other-note", "actions/mark.go", `asked.Undo && at != asked.Mark`, `false`,
			"TestAnAcknowledgementIsReplacedOrWithdrawn"},
		{"strange-member", "actions/api.go", `decoder.More()`, `false`, "TestActionsByTheAPI"},
		{"log-filled", "actions/perform.go", `!logged`, `false`, "TestRefusedTriesDoNotFillTheLog"},
		{"notice-tries", "actions/notices.go", `range «noticeTries»`, `1`, "TestForceUnlockIsToldToSomebodyOutside"},
	}
}

// texts are escapes: nothing that a client wrote is more than text.
func texts() []fault {
	return []fault{
		{"visible", "site/render.go", `"visible":      «text.Visible»`, `func(s string) string { return s }`,
			"TestHostileTextIsShownAndHarmless"},
		{"prose", "site/render.go", `"prose":        «text.Prose»`, `func(s string) string { return s }`,
			"TestHostileTextIsShownAndHarmless"},
		{"plain", "site/render.go", `"isPlain":      «IsPlain»`, `func(string) bool { return true }`,
			"TestHostileTextIsShownAndHarmless"},
		{"box", "site/render.go", `unicode.IsControl(r)`, `false`, "TestHostileTextIsShownAndHarmless"},
		{"command", "site/site.go", `text.ShellOperand(lock)`, `lock`, "TestCommandsAreSafeToPaste"},
		{"command-word", "site/site.go", `text.ShellWord(word)`, `word`,
			"TestWhileStaleTheCommandDoesWhatTheFormWanted"},
		{"link-value", "site/urls.go", `url.QueryEscape(s)`, `s`, "TestHostileTextIsExactInTheAPI"},
		{"link-name", "site/urls.go", `[]string{«key», value}`, `"name"`, "TestHostileTextIsExactInTheAPI"},
		{"link-climbs", "linktemplate/template.go", `part == ".."`, `false`, "TestNoNameClimbsInAConfiguredLink"},
		{"link-host", "linktemplate/template.go", `strings.ContainsAny(host, "{}#")`, `false`,
			"TestLinksThatCannotBeTrustedAreRefused"},
		{"link-escape", "linktemplate/template.go", `url.QueryEscape(value)`, `value`,
			"TestConfiguredLinksLeadWhereTheyAlwaysLead"},
		{"link-trace", "setup/links.go", `strings.Trim(id, "0123456789abcdef") != ""`, `false`,
			"TestALinkToATraceIsThereWhereTheRecordHasOne"},
		{"silence", "setup/links.go", "fragment(`{lock=\"`+label+`\"}`)", `label`,
			"TestTheSilenceOfAlertmanagerIsLinked"},
		{"cell-formula", "api/csv.go", `begins && strings.ContainsRune(formula, c)`, `false`,
			"TestACellIsNoFormulaWhereverAProgramCutsTheLine"},
		{"cell-semicolon", "api/csv.go", `«c == ';'»:`, `false`, "TestACellIsNoFormulaWhereverAProgramCutsTheLine"},
		{"cell-quote", "api/csv.go", `«c == '"'» {`, `false`, "TestACellIsNoFormulaWhereverAProgramCutsTheLine"},
		{"name-json", "../lockjson/lockjson.go", `Base64(r.Name)`, `""`, "TestHostileTextIsExactInTheAPI"},
		{"non-ascii", "site/render.go", `text.NonASCII(name)`, `false`, "TestALongNameIsNotSaidToBeForeign"},
	}
}

// lists are orders, searches, pages and the versions of lists.
func lists() []fault {
	return []fault{
		{"page-size", "pages/list.go", `min(l.Limit, maxLimit)`, `l.Limit`, "TestLimitsHold"},
		{"api-size", "api/locks.go", `l.asked.Limit > pages.MaxAPILimit`, `false`, "TestLimitsHold"},
		{"other-list", "locks/results.go", `c.List != list`, `false`, "TestPagingGoesBackTheWayItCame"},
		{"api-cursor", "api/locks.go", `v.Get(name) != "" && !ok`, `false`, "TestAPISaysWhatItCannotRead"},
		{"query-long", "locks/query.go", `text.Cut(typed, MaxQueryBytes)`, `typed`,
			"TestQueryThatCannotBeReadIsToldAndTheRestStillFinds"},
		{"query-terms", "locks/query.go", `len(q.Terms) == maxTerms`, `false`,
			"TestQueryThatCannotBeReadIsToldAndTheRestStillFinds"},
		{"regexp-many", "locks/terms.go", `q.regexps > maxRegexps`, `false`,
			"TestQueryThatCannotBeReadIsToldAndTheRestStillFinds"},
		{"regexp-cost", "locks/query.go", `n > maxRegexpInstructions`, `false`,
			"TestARegularExpressionIsLimitedByWhatItCompilesTo"},
		{"search-time", "locks/query.go", `«maxSearch», ErrTooSlow)`, `30 * time.Second`,
			"TestASearchThatTakesTooLongIsStopped"},
		{"exact", "locks/terms.go", `unquote(have) == value`, `strings.Contains(have, value)`, "TestQueryFinds"},
		{"not", "locks/query.go", `t.match(r, now) == t.not`, `!t.match(r, now)`, "TestQueryFinds"},
		{"unlock-term", "locks/terms.go", `r.autoUnlockAt().Sub(now)`, `now.Sub(r.autoUnlockAt())`, "TestQueryFinds"},
		{"bar-grown", "pages/list_bar.go", `«age > whole» {`, `false`, "TestBarsOfHolds"},
		{"bar-beats", "pages/list_bar.go", `staleness.KeptAlive(r.Record)`, `true`, "TestBarsOfHolds"},
		{"form-back", "answer.go", `p = «d.wayBack(r, p)»`, `p`, "TestAFormThatCannotBeShownLeadsBack"},
		{"unknown-first", "../lockorder/lockorder.go", `o.unknown(&p)`, `false`, "TestOrders"},
		{"digits", "../lockorder/lockorder.go", `natural(text)`, `text`, "TestOrders"},
		{"by-waiters", "../lockorder/lockorder.go", `(l.urgency()+1)<<waitersBits - l.waiters()`,
			`(l.urgency() + 1) << waitersBits`,
			"TestLocksThatBlockMostComeFirstInEveryOrderByImpact"},
		{"version", "locks/row.go", `uint64(r.Revision)`, `uint64(0)`, "TestChangesAreSent"},
		{"version-unlocker", "pages/list.go", `fmt.Sprintf("%+v", u.Sweep)`, `""`,
			"TestChangesAreSent"},
		{"version-unclaimed", "pages/list.go", `range «unclaimedIn(r)» { // time`, `nil`,
			"TestChangesAreSent"},
		{"metrics-name", "metrics.go", `route := «"none"»`, `r.URL.Path`, "TestMetricsCountByRouteAndNeverByName"},
	}
}

// past is what is over, and what is known while etcd is away.
func past() []fault {
	return []fault{
		{"silence-worsens", "locks/freshness.go", `f.missed(now) > 0`, `false`, "TestSilenceMakesNothingWorse"},
		{"stale-late", "locks/freshness.go", `f.missed(now) >= staleAfter`, `f.missed(now) > staleAfter`,
			"TestPageSaysHowFreshItIs"},
		{"never-ready", "locks/freshness.go", `f.Heard.IsZero()`, `false`, "TestNothingLoadedYetIsNotAQuietNight"},
		{"slow-etcd", "site/lookup.go", `s.slow.Load()`, `true`, "TestLockPageDoesNotWaitForASilentEtcd"},
		{"slow-forgotten", "site/lookup.go", `time.Since(began) > etcdread.Hurry`, `false`,
			"TestLockPageWaitsForAnEtcdThatIsOnlySlow"},
		{"other-ending", "site/lookup.go", `ending.Lock != name`, `false`,
			"TestWordsLookAsTheyDidWhenSomebodyReadThem"},
		{"asked-by-all", "history/store.go", `age >= 0 && age < RereadEvery`, `false`,
			"TestSilentEtcdIsNotAskedForTheHistoryByEverybody"},
		{"etcd-wins", "history/store.go", `!have[hold{e.Lock, e.Token}]`, `true`, "TestHistoryTellsHowHoldsEnded"},
		{"gap", "history/store.go", `relists != s.relists`, `false`, "TestHistoryIsHonestAboutGaps"},
		{"past-twice", "history/search.go", `record.token < c.token`, `record.token <= c.token`,
			"TestHistoryComesInPagesWithoutLossOrDouble"},
		{"past-to", "history/search.go", `at.Before(r.to)`, `true`, "TestHistoryComesInPagesWithoutLossOrDouble"},
		{"past-left", "history/search.go", `«locks.Stopped(ctx)» // also`, `nil`,
			"TestPagesOfThePastEndWithTheirReader"},
	}
}

// several are clusters side by side.
func several() []fault {
	return []fault{
		{"other-cluster", "site/several.go", `part.Caller.May(access.View)`, `true`,
			"TestPermissionsCanBeForSomeClusters"},
		{"any-cluster", "access/permissions.go", `text.Matches(*pattern, cluster)`, `true`,
			"TestPermissionsCanBeForSomeClusters"},
		{"away-judged", "site/several.go", "«level == locks.Stale» {\n\t\t\tp.Frozen", `false`,
			"TestStatesOfAClusterThatIsAwayAreThoseOfItsLastSignOfLife"},
		{"which", "site/several.go", `len(knowing) != 1`, `len(knowing) == 0`,
			"TestLockWithoutAClusterIsFoundWhereOnlyOneKnowsIt"},
		{"unlockers-told", "site/several.go", "range «r.Each()» {\n\t\talive = append", `r.parts`,
			"TestUnlockersOfOtherClustersAreNotTold"},
		{"cluster-twice", "servers.go", `slices.Contains(names, name)`, `false`, "TestClustersNeedDistinctNames"},
		{"past-cluster", "history/search.go", `record.cluster > c.cluster`, `false`,
			"TestHistoryOfSeveralClustersGoesOnAtTheRightHold"},
	}
}

// judgements are how the locks of a snapshot are judged and found.
func judgements() []fault {
	return []fault{
		{"turns", "row.go", `verdict.Turns(r.Record, v, f, at.Wall)`, `time.Time{}`, "TestAClassChangesByTimeAlone"},
		{"search-left", "results.go", `ctx.Err() != nil`, `false`, "TestASearchGoesNoFurtherWhenItsReaderLeaves"},
		{"left", "results.go", `!errors.Is(err, ErrLeft)`, `true`, "TestASearchWhoseReaderLeftIsDoneForTheOthers"},
		{"case", "row.go", `strings.ToLower(text)`, `text`, "TestAWordIsFoundInEveryTextOfALockWhateverItsCase"},
		{"row-again", "results.go", `r.search(o, p, 1)`, `r.search(o, p, 0)`, "TestPagesShowEveryLockOnceInEveryOrder"},
		{"page-back", "results.go", `«r.search(o, p, 0)»-limit`, `r.search(o, p, 1)`,
			"TestPagesShowEveryLockOnceInEveryOrder"},
		{"counted-once", "counts.go", `c.in[urgency] += «n»`, `0`, "TestOwnersAddUpToAllLocks"},
	}
}
