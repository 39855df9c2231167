package lockjson

import "github.com/clustermutex/unlocker/internal/diagnosis/verdict"

// Verdict is what a person must know first.
type Verdict struct {
	Class    string  `json:"class"`
	Severity string  `json:"severity"`
	Sentence string  `json:"sentence"`
	Lock     *string `json:"lock"`
	Cluster  string  `json:"cluster,omitempty"` // of several
	Next     *string `json:"next"`
	Command  *string `json:"command"`
}

// NewVerdict describes a verdict, with its sentence at the time of the answer, and its command.
func NewVerdict(v *verdict.Verdict, sentence, command string) *Verdict {
	return &Verdict{v.Class.String(), v.Class.Severity(), sentence, Known(v.Lock), v.Cluster, Known(string(v.Next)),
		Known(command)}
}

// VerdictShape describes [Verdict].
func VerdictShape() Shape {
	var classes []string
	for _, c := range verdict.Classes() {
		classes = append(classes, c.String())
	}
	return Shape{"A verdict", Verdict{}, []Line{
		{"class", "what it is about: " + either(classes) + "; of several the first"},
		{"severity", "system, bad, alerting, warn or calm"},
		{"sentence", "the verdict as a sentence"},
		{"lock", "the lock that it is about; null when it is about none"},
		{"cluster", "its cluster, for people; only the API of a page of several clusters has it"},
		{"next", "the next step: status, runbook, cycle, look, force_unlock, more_time or problems; null for none"},
		{"command", "that step as a command, or the address of a runbook; null for none"},
	}}
}
