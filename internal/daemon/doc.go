// Package daemon is the frame of a long-running program: signals and exit status (Main), loops that start together and
// stop in order (Group), an HTTP server with TLS and passwords from a file (Server), probes and metrics (Ops), and the
// log (Logger).
//
// A program creates its parts and adds them to a Group from the bottom up:
//
//	group.Add("view", view.Run)
//	group.Add("http", server.Run)
//	group.Add("sweeper", sweeper.Run)
//
// On SIGTERM readiness turns to 503. Everything keeps working for the shutdown delay, until requests go elsewhere. Then
// the parts stop from the last to the first: no new removal starts, requests are answered, and the view stops last.
package daemon
