package flags

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/internal/protocol"
)

// choice defines a flag whose value is one of some words.
func choice(fs *pflag.FlagSet, target *string, words []string, name, value, usage string) {
	*target = value
	fs.Var(&choiceValue{target, words}, name, usage+": "+strings.Join(words, ", "))
}

type choiceValue struct {
	target *string
	words  []string
}

func (v *choiceValue) String() string { return *v.target }
func (v *choiceValue) Type() string   { return "string" }

func (v *choiceValue) Set(word string) error {
	if !slices.Contains(v.words, word) {
		return fmt.Errorf("it must be one of %s", strings.Join(v.words, ", "))
	}
	*v.target = word
	return nil
}

// prefixValue is the prefix of the locks' keys, with its final slash.
type prefixValue string

func (v *prefixValue) String() string { return string(*v) }
func (v *prefixValue) Type() string   { return "string" }

func (v *prefixValue) Set(prefix string) error {
	l, err := protocol.NewLayout(prefix)
	if err != nil {
		return err
	}
	*v = prefixValue(l.Prefix())
	return nil
}

// abandonedValue is whether abandoned locks are unlocked, as the word report or unlock.
type abandonedValue bool

func (v *abandonedValue) String() string {
	if *v {
		return "unlock"
	}
	return "report"
}

func (v *abandonedValue) Type() string { return "string" }

func (v *abandonedValue) Set(word string) error {
	switch word {
	case "report":
		*v = false
	case "unlock":
		*v = true
	default:
		return errors.New("it must be report or unlock")
	}
	return nil
}
