package opsdocs

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/cmd/internal/mutexdash"
	"github.com/clustermutex/unlocker/cmd/internal/unlocker"
	"github.com/clustermutex/unlocker/internal/cli"
)

// The handbook is read at night. Its commands are there, with these flags.
func TestCommandsOfTheHandbookExist(t *testing.T) {
	text := strings.ReplaceAll(read(t, "docs/operations.md"), "\\\n", "")
	command := regexp.MustCompile("(?m)(?:^|`|; |/usr/bin/)((?:mutexctl|unlocker|mutexdash) [^`|#\n]*)")
	found := 0
	for _, line := range command.FindAllStringSubmatch(text, -1) {
		words := strings.Fields(strings.NewReplacer(`"`, "", "'", "", "…", "").Replace(line[1]))
		root := map[string]func() *cobra.Command{
			"mutexctl": func() *cobra.Command { return cli.Command(cli.Process{}) }, "unlocker": unlocker.Command, "mutexdash": mutexdash.Command,
		}[words[0]]()
		if len(words) > 1 && !strings.HasPrefix(words[1], "-") && regexp.MustCompile(`^[a-z-]+$`).MatchString(words[1]) && root.Name() == "mutexctl" {
			if sub, _, err := root.Find(words[1:2]); err != nil || sub == root {
				continue // a sentence about the program
			}
		}
		cmd, rest, err := root.Find(words[1:])
		if err != nil {
			t.Errorf("%q: %v", line[1], err)
			continue
		}
		found++
		for _, word := range rest {
			name, _, _ := strings.Cut(word, "=")
			if long, ok := strings.CutPrefix(name, "--"); ok && cmd.Flags().Lookup(long) == nil && cmd.InheritedFlags().Lookup(long) == nil && cmd.PersistentFlags().Lookup(long) == nil {
				t.Errorf("%q: there is no flag %s", line[1], name)
			}
		}
	}
	if found < 15 {
		t.Errorf("only %d commands were found", found)
	}
}

// Flags that are named without a command are flags of some program.
func TestFlagsInTheHandbookExist(t *testing.T) {
	known := read(t, "docs/flags.md")
	for _, flag := range regexp.MustCompile("`(--[a-z]+\\.[a-z.-]+)").FindAllStringSubmatch(read(t, "docs/operations.md"), -1) {
		if !strings.Contains(known, "`"+flag[1]+" ") && !strings.Contains(known, "`"+flag[1]+"`") {
			t.Errorf("there is no flag %s", flag[1])
		}
	}
}
