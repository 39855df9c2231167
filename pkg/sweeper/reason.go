package sweeper

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// addRecord adds the record, except its backtrace, to a log line, for later investigation.
func addRecord(e *zerolog.Event, r *metadata.Record) *zerolog.Event {
	e.Str("lock", text.Visible(r.Name)).Str("owner", text.Visible(r.Owner)).
		Str("hostname", text.Visible(r.Hostname)).Int64("pid", r.PID).
		Str("uuid", text.Visible(r.UUID)).Int64("token", r.Token).Int64("revision", r.Revision).
		Str("purpose", text.Visible(r.Purpose))
	addTime(e, "locked_at", r.LockedAt)
	addTime(e, "alert_at", r.AlertAt)
	addTime(e, "auto_unlock_at", r.AutoUnlockAt)
	if r.Alive != nil {
		addTime(e, "alive", r.Alive.At)
		e.Str("progress", text.Visible(r.Alive.Progress))
	}
	if r.Death != nil {
		e.Dict("death", statementFields(r.Death).Bool("disputed", r.Disputed()))
	}
	if r.Suspicion != nil {
		e.Dict("suspicion", statementFields(r.Suspicion))
	}
	if len(r.Attributes) > 0 {
		attributes := zerolog.Dict()
		for _, name := range slices.Sorted(maps.Keys(r.Attributes)) {
			if value, ok := r.Attributes[name].(string); ok {
				attributes.Str(text.Visible(name), text.Visible(value))
			} else {
				attributes.Interface(text.Visible(name), r.Attributes[name])
			}
		}
		e.Dict("attributes", attributes)
	}
	if len(r.Problems) > 0 {
		problems := make([]string, len(r.Problems))
		for i, p := range r.Problems {
			problems[i] = text.Visible(p.String())
		}
		e.Strs("problems", problems)
	}
	return e
}

func statementFields(st *metadata.Statement) *zerolog.Event {
	e := zerolog.Dict().Str("cause", text.Visible(st.Cause)).Str("how", text.Visible(st.Reason)).
		Str("witness", text.Visible(st.Witness)).Str("by", text.Visible(st.By))
	addTime(e, "at", protocol.EndedAt(st))
	if st.ExitCode != nil {
		e.Int("exit_code", *st.ExitCode)
	}
	if st.Signal != "" {
		e.Str("signal", text.Visible(st.Signal))
	}
	if st.Detail != "" {
		e.Str("detail", text.Visible(st.Detail))
	}
	return e
}

// addTime adds a time, unless it is zero.
func addTime(e *zerolog.Event, key string, t time.Time) {
	if !t.IsZero() {
		e.Str(key, t.UTC().Format(time.RFC3339Nano))
	}
}

// reason returns one sentence that says why the lock is removed, for the log and the history; proof means that its
// holder is proven to have ended. The sentence is stored, so it gives times, not durations up to now.
func (s *Sweeper) reason(r *metadata.Record, proof bool, now staleness.Moment) string {
	if proof {
		return fmt.Sprintf("%s, according to the witness %s", protocol.DescribeStatementUTC(r.Death),
			text.Visible(r.Death.By))
	}
	reason := s.overdueReason(r, now)
	if r.ProvenDead() {
		reason += "; " + protocol.DescribeStatementUTC(r.Death)
	}
	return reason
}

func (s *Sweeper) overdueReason(r *metadata.Record, now staleness.Moment) string {
	warned := fmt.Sprintf("the lock alerted for at least %v", s.cfg.Policy.MinWarning)
	deadline := staleness.Judge(r, s.cfg.Policy, now).ExpiresAt.Format(time.RFC3339)
	if r.AutoUnlockAt.IsZero() {
		return fmt.Sprintf("it has no readable auto_unlock_at, and the %v that the unlocker's policy gives such "+
			"locks ended at %s; %s", s.cfg.Policy.DefaultAutoUnlockAfter, deadline, warned)
	}
	return fmt.Sprintf("its auto_unlock_at %s passed and its holder did not extend it; %s", deadline, warned)
}
