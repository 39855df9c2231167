package opsdocs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/cmd/internal/mutexdash"
	"github.com/clustermutex/unlocker/cmd/internal/unlocker"
	"github.com/clustermutex/unlocker/internal/cli"
)

// handbook lists the pages for operators.
func handbook(t *testing.T) string {
	return read(t, "docs/operations.md") + read(t, "docs/monitoring.md") + read(t, "docs/runbooks.md")
}

// The handbook is read at night: its commands and their flags have to exist.
func TestHandbookCommandsExist(t *testing.T) {
	text := strings.ReplaceAll(handbook(t), "\\\n", "")
	command := regexp.MustCompile("(?m)(?:^|`|; |/usr/bin/)((?:mutexctl|unlocker|mutexdash) [^`|#\n]*)")
	found := 0
	for _, line := range command.FindAllStringSubmatch(text, -1) {
		words := strings.Fields(strings.NewReplacer(`"`, "", "'", "", "…", "").Replace(line[1]))
		root := map[string]func() *cobra.Command{
			"mutexctl": func() *cobra.Command { return cli.Command(cli.Process{}) }, "unlocker": unlocker.Command,
			"mutexdash": mutexdash.Command,
		}[words[0]]()
		if len(words) > 1 && !strings.HasPrefix(words[1], "-") &&
			regexp.MustCompile(`^[a-z-]+$`).MatchString(words[1]) && root.Name() == "mutexctl" {
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
			if long, ok := strings.CutPrefix(name, "--"); ok && cmd.Flags().Lookup(long) == nil &&
				cmd.InheritedFlags().Lookup(long) == nil && cmd.PersistentFlags().Lookup(long) == nil {
				t.Errorf("%q: unknown flag %s", line[1], name)
			}
		}
	}
	if found < 15 {
		t.Errorf("only %d commands were found", found)
	}
}

// The how-to for systemd has the unlockers ask for a password, which curl has from ~/.netrc with -n.
func TestRunbookCommandsPassTheUnlockersPassword(t *testing.T) {
	for _, command := range regexp.MustCompile(`curl .*?unlocker:10980`).FindAllString(handbook(t), -1) {
		if !strings.HasPrefix(command, "curl -sn ") {
			t.Errorf("%s: 401 where unlockers ask for a password", command)
		}
	}
}

// Flags that are named without a command are flags of some program.
func TestHandbookFlagsExist(t *testing.T) {
	known := read(t, "docs/flags.md")
	for _, flag := range regexp.MustCompile("`(--[a-z]+\\.[a-z.-]+)").FindAllStringSubmatch(handbook(t), -1) {
		if !strings.Contains(known, "`"+flag[1]+" ") && !strings.Contains(known, "`"+flag[1]+"`") {
			t.Errorf("unknown flag %s", flag[1])
		}
	}
}

// What a file of deploy refers to exists. Packages and releases have names of their own for what they install.
func TestPagesReferencedInDeployExist(t *testing.T) {
	named := regexp.MustCompile(`[\w./-]+\.md\b`)
	found := 0
	err := filepath.WalkDir(top+"deploy", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(file, ".json") || strings.HasSuffix(file, ".md") ||
			filepath.Dir(file) == top+"deploy/packages" || file == top+"deploy/release" {
			return err
		}
		for _, page := range named.FindAllString(read(t, strings.TrimPrefix(filepath.ToSlash(file), top)), -1) {
			found++
			_, after, link := strings.Cut(page, "/blob/main/")
			place := top + page
			switch {
			case link: // of the whole repository
				place = top + after
			case !strings.Contains(page, "/"):
				place = filepath.Join(filepath.Dir(file), page)
			}
			if _, err := os.Stat(place); err != nil {
				t.Errorf("%s names %s, which does not exist", file, page)
			}
		}
		return nil
	})
	if err != nil || found < 10 {
		t.Errorf("%d pages are named, %v", found, err)
	}
}
