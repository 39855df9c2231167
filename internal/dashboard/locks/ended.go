package locks

import "github.com/clustermutex/unlocker/pkg/metadata"

// EndedWord is how a hold ended, in a word.
func EndedWord(ended string) string {
	words, _ := metadata.EndingOf(ended)
	return words.Word
}

// EndedTerm is the term that finds the holds which ended so.
func EndedTerm(word string) string { return "ended:" + word }

// Alerted is the word that finds the holds for which people were alerted, however they ended.
const Alerted = "alerted"

// endedWords are the words that say which holds are meant.
func endedWords() (words []string) {
	for _, e := range metadata.Endings() {
		words = append(words, e.Word)
	}
	return append(words, Alerted)
}

// HadAlerted reports whether people were alerted before the hold ended.
func HadAlerted(e *metadata.Ending) bool {
	return !e.AlertAt.IsZero() && e.AlertAt.Before(e.EndedAt.Time)
}
