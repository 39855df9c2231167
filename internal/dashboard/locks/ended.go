package locks

import "github.com/clustermutex/unlocker/pkg/metadata"

// EndedWord is how a hold ended, for people.
func EndedWord(ended string) string {
	switch ended {
	case metadata.EndedAutoUnlocked:
		return "auto-unlocked"
	case metadata.EndedAbandoned:
		return "abandoned"
	case metadata.EndedForced:
		return "force-unlocked"
	case metadata.EndedReleased:
		return "released"
	case metadata.EndedYielded:
		return "yielded"
	}
	return "ended"
}

// alerted is the word that finds the holds for which people were alerted, however they ended.
const alerted = "alerted"

// endedWords are the words for how a hold can have ended.
func endedWords() []string {
	return []string{EndedWord(metadata.EndedReleased), EndedWord(metadata.EndedYielded),
		EndedWord(metadata.EndedAutoUnlocked), EndedWord(metadata.EndedAbandoned), EndedWord(metadata.EndedForced),
		alerted}
}

// HadAlerted reports whether people were alerted before the hold ended.
func HadAlerted(e *metadata.Ending) bool {
	return !e.AlertAt.IsZero() && e.AlertAt.Before(e.EndedAt.Time)
}
