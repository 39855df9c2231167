package locks

// Form is a form of a term, and what it finds.
type Form struct{ Term, Finds string }

// Rules say how terms go together.
const Rules = "All terms must match; of several patterns (a* b*), one is enough. A - before a term excludes what it finds."

// Forms are the query language, for the help of pages and commands.
func Forms() []Form {
	return []Form{
		{`invoice`, "the word in name, owner, host or purpose, in any case"},
		{`"two words"`, "the phrase; in quotes, * ? and : have no special meaning"},
		{`billing/*`, "whole names: * is any text, slashes included, ? one character"},
		{`name:billing/nightly`, "a part of the name; with * or ?, the whole name"},
		{`name:=billing/nightly`, "exactly this name"},
		{`name:/^billing\/[0-9]+$/`, "names by regular expression"},
		{`owner:billing,catalog`, "one or the other; owner: host: purpose: acknowledged-by: are like name:"},
		{`host:node-7`, "a part of the host; host:node-7:17 has the process, too"},
		{`pid:17`, "the process id"},
		{`purpose:invoices`, "a part of the purpose"},
		{`hold:3f2a`, "the hold whose id begins with this"},
		{`label:team=core`, "an attribute of the record; label:team for any value"},
		{`state:alerting,expired`, "states; expiring too"},
		{`held:>1h`, "held for longer; < for less; lengths like 90s 5m 1h30m 2d"},
		{`alert:<5m`, "alerts within that time, or did"},
		{`unlock:<2m`, "is auto-unlocked within that time, or should have been"},
		{`expired:>1m`, "expired for longer than that"},
		{`waiters:>0`, "more waiters than that; < for fewer"},
		{`wait:>30s`, "somebody has waited for longer"},
		{`taken:>2026-11-21T03:00:00Z`, "taken after that time, < before it"},
		{`alerted:>2026-11-21T03:00:00Z`, "alerting, abandoned or expired since then"},
		{`acknowledged:no`, "not acknowledged"},
		{`acknowledged-by:ann`, "acknowledged by this person"},
		{`ended:auto-unlocked`, "past holds; or released, yielded, abandoned, force-unlocked"},
		{`ended:alerted`, "past holds that had alerted before"},
	}
}
