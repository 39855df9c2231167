// Package dashboard is the page and the JSON API that answer, at 3 am: which lock is stuck, who holds it, what for, and
// what happens next.
//
// A request travels one way. The door (door.go) finds out who asks and makes the request one value: a caller, a now, a
// freshness, a snapshot. What the caller may do is checked before the handler runs (answer.go). Package locks filters
// and sorts the snapshot; a struct is filled from it and becomes HTML (packages pages and actions) or JSON (package
// api). No list of locks reads etcd; only the page of one lock does, for its backtrace and its keys, and falls back to
// the snapshot when etcd is away.
//
// One thing can be changed: package unlock ends a hold by force, in one transaction that is fenced to the hold that the
// person saw. Package history knows holds that are over from etcd and, where nobody wrote it there, from what was seen.
//
// Everything that comes from a record is hostile until shown: names travel in queries only, text passes through
// internal/text, html/template escapes the rest, every response carries the headers of headers.go, errors included.
package dashboard
