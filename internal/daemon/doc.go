// Package daemon is what any long-running program of ours needs: an end by signal with an exit status (Main), several
// loops that start together and stop in order (Group), an HTTP server with TLS and passwords from a file (Server),
// probes and metrics (Ops), and a log (Logger).
//
// A main function makes its parts and adds them to a Group from the ground up:
//
//	group.Add("view", view.Run)
//	group.Add("http", server.Run)
//	group.Add("sweeper", sweeper.Run)
//
// On SIGTERM readiness turns to 503, everything works on for the shutdown delay, so that nobody sends requests any
// more, and then the parts stop from the last to the first: no removal starts, requests are answered, and the picture
// goes last.
package daemon
