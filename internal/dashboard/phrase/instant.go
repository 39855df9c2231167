// Package phrase puts into words what pages are made of: instants, as they look from a viewpoint, numbers, and the
// sentences that hold both. Lengths of time are those of package text.
package phrase

import "time"

// UTC is an instant for people.
func UTC(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") + " UTC" }

// TimeOfDay is the time of day of an instant, for sentences about the last minutes.
func TimeOfDay(t time.Time) string { return t.UTC().Format("15:04:05") }

// ISO is an instant for programs, in milliseconds.
func ISO(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
