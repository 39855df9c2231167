package lockjson

import "time"

// Suggestion is how long a lock was held, and the deadlines that this suggests.
type Suggestion struct {
	Name          string   `json:"name"`
	NameBase64    string   `json:"name_base64,omitempty"`
	Holds         int      `json:"holds"`
	Unmeasured    int      `json:"unmeasured"`
	EndedByOthers int      `json:"ended_by_others"`
	AutoUnlocked  int      `json:"auto_unlocked"`
	Median        *float64 `json:"held_p50_seconds"`
	P95           *float64 `json:"held_p95_seconds"`
	P99           *float64 `json:"held_p99_seconds"`
	Longest       *float64 `json:"held_max_seconds"`
	LongestWait   *float64 `json:"wait_max_seconds"`
	Heartbeat     bool     `json:"heartbeat"`
	AlertAfter    *float64 `json:"alert_after_seconds"`
	UnlockAfter   *float64 `json:"auto_unlock_after_seconds"`
	AlertBetter   *float64 `json:"suggested_alert_after_seconds"`
	UnlockBetter  *float64 `json:"suggested_auto_unlock_after_seconds"`
}

// Seconds is a length of time, nil for 0.
func Seconds(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	s := seconds(d)
	return &s
}

// SuggestionShape describes [Suggestion].
func SuggestionShape() Shape {
	return Shape{"A suggestion", Suggestion{}, []Line{
		{"name", "the lock's name; the holds of its shares count for it"},
		{"name_base64", "the exact bytes of a name that is not UTF-8; else absent"},
		{"holds", "how many holds were measured: those that their holders ended"},
		{"unmeasured", "how many more of those there were, of which nothing says how long they lasted"},
		{"ended_by_others", "how many holds an unlocker or a person ended meanwhile; they are not measured"},
		{"auto_unlocked", "how many holds an unlocker ended because of their deadline, in the history"},
		{"held_p50_seconds, held_p95_seconds, held_p99_seconds",
			"half of the measured holds, 95 % and 99 % of them were not longer"},
		{"held_max_seconds", "the longest hold, of those that still last, too"},
		{"wait_max_seconds", "the longest wait, of those that still last, too; null when nobody waited"},
		{"heartbeat", "whether a holder had a heartbeat"},
		{"alert_after_seconds, auto_unlock_after_seconds", "the deadlines of the newest hold"},
		{"suggested_alert_after_seconds", "null when there are too few holds"},
		{"suggested_auto_unlock_after_seconds", "null when there are too few holds, and for a lock with a heartbeat"},
	}}
}
