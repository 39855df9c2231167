package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// The output formats.
const (
	formatTable = "table"
	formatJSON  = "json"
	formatName  = "name"
)

// format is the value of --output: one of the formats that a command has.
type format struct {
	value string
	of    []string
}

// output gives the command its --output flag; the first format is the default.
func output(cmd *cobra.Command, formats ...string) *format {
	f := &format{value: formats[0], of: formats}
	cmd.Flags().VarP(f, "output", "o", "output format: "+strings.Join(formats, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return f
}

func (f *format) String() string { return f.value }
func (f *format) Type() string   { return "format" }

func (f *format) Set(s string) error {
	if !slices.Contains(f.of, s) {
		return fmt.Errorf("want one of %s", strings.Join(f.of, ", "))
	}
	f.value = s
	return nil
}

func (f *format) json() bool { return f.value == formatJSON }
