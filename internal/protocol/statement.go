package protocol

import (
	"cmp"
	"fmt"
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// subject returns what ended, according to the cause of a statement.
func subject(cause string) string {
	switch cause {
	case metadata.CauseProcessEnded, metadata.CauseCommandLives:
		return "its process ended"
	case metadata.CauseRebooted:
		return "its machine was rebooted"
	case metadata.CauseContainerEnded:
		return "its container ended"
	case metadata.CauseContainerRestarted:
		return "its container ended and was restarted"
	case metadata.CausePodEnded:
		return "its pod ended"
	case metadata.CausePodDeleted:
		return "its pod was deleted"
	case metadata.CausePodNeverSeen:
		return "its pod has not been seen"
	case metadata.CauseNodeNotReady:
		return "the node of its pod is not ready"
	}
	return ""
}

// WhatEnded says what ended, "its container ended", and how, "with exit code 137 (OOMKilled)", empty if unknown. A
// caller may put the time between the two. Text from outside is made visible.
func WhatEnded(s *metadata.Statement) (what, how string) {
	what = cmp.Or(subject(s.Cause), text.Visible(text.Clip(s.Cause, maxWord)))
	switch {
	case s.Signal != "":
		how = "by " + text.Visible(text.Clip(s.Signal, maxWord))
	case s.ExitCode != nil:
		how = fmt.Sprintf("with exit code %d", *s.ExitCode)
	}
	if s.Detail == "" {
		return what, how
	}
	if how != "" {
		how += " "
	}
	return what, how + "(" + text.Visible(text.Clip(s.Detail, maxWord)) + ")"
}

// maxWord is the most bytes of a witness's word in a sentence.
const maxWord = 100

// EndedAt returns when the holder ended, by the witness's clock; if the witness does not know, when it wrote the
// statement.
func EndedAt(s *metadata.Statement) time.Time {
	if s.EndedAt.IsZero() {
		return s.At.Time
	}
	return s.EndedAt.Time
}

// HowItEnded returns a statement as one sentence: "its container ended 40s ago with exit code 137 (OOMKilled)".
func HowItEnded(s *metadata.Statement, now time.Time) string {
	return howItEnded(s, func(at time.Time) string { return text.Duration(now.Sub(at)) + " ago" })
}

// HowItEndedAt is HowItEnded for a sentence that is stored: "its container ended at 2026-11-21T03:12:01Z with exit code
// 137 (OOMKilled)".
func HowItEndedAt(s *metadata.Statement) string {
	return howItEnded(s, func(at time.Time) string { return "at " + at.UTC().Format(time.RFC3339) })
}

func howItEnded(s *metadata.Statement, when func(time.Time) string) string {
	sentence, how := WhatEnded(s)
	if at := EndedAt(s); !at.IsZero() {
		sentence += " " + when(at)
	}
	if how != "" {
		sentence += " " + how
	}
	return sentence
}
