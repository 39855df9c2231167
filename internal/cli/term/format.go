package term

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// The output formats.
const (
	TableFormat = "table"
	JSONFormat  = "json"
	NameFormat  = "name"
)

// Format is the value of --output: one of a command's formats.
type Format struct {
	value string
	of    []string
}

// Output gives the command its --output flag; the first format is the default.
func Output(cmd *cobra.Command, formats ...string) *Format {
	f := &Format{value: formats[0], of: formats}
	cmd.Flags().VarP(f, "output", "o", "output format: "+strings.Join(formats, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return f
}

// String returns the chosen format.
func (f *Format) String() string { return f.value }

// Type names the values in help texts.
func (f *Format) Type() string { return "format" }

// Set sets the format.
func (f *Format) Set(s string) error {
	if !slices.Contains(f.of, s) {
		return fmt.Errorf("want one of %s", strings.Join(f.of, ", "))
	}
	f.value = s
	return nil
}

// JSON reports whether the output is for programs.
func (f *Format) JSON() bool { return f.value == JSONFormat }
