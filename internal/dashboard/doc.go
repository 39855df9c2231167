// Package dashboard is the page and the JSON API that answer, at 3 am: which lock is stuck, who holds it, what for, and
// what happens next.
//
// A request travels one way: the picture of all locks (picture.go) is filtered and sorted by a query (query.go,
// result.go), a page struct is filled from it, and the struct becomes HTML or JSON (render.go, api.go). No list of
// locks reads etcd; only the page of one lock does, for its backtrace and its keys, and falls back to the picture when
// etcd is away.
//
// Who asks is found out for every request (caller.go) and what that caller may do is checked before the handler runs
// (admit.go). One thing can be changed: a hold can be ended by force (unlock.go), in one transaction that is fenced to
// the hold that the person saw. Holds that are over are known from etcd and, where nobody wrote it there, from what was
// seen (past.go).
//
// Everything that comes from a record is hostile until shown: names travel in queries only, text passes through
// visible.go, html/template escapes the rest, every response carries the headers of headers.go, errors included.
//
// The package knows neither etcd nor the view: [Config] joins it to them with function values.
package dashboard
