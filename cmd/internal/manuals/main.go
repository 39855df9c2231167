// Manuals writes what packages have beside the programs: pages for man(1), and completions for bash, zsh and fish.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/cmd/internal/mutexdash"
	"github.com/clustermutex/unlocker/cmd/internal/unlocker"
	"github.com/clustermutex/unlocker/internal/cli"
	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/flags"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: manuals DIRECTORY")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "manuals:", err)
		os.Exit(1)
	}
}

// write writes the files of each program into a directory of its own. A package has them below /usr/share, readable for
// everybody, which is up to whoever makes it.
func write(dir string) error {
	for _, p := range []struct {
		program *cobra.Command
		section int
	}{
		{cli.Command(cli.Process{}), 1}, {unlocker.Command(), 8}, {mutexdash.Command(), 8},
	} {
		name := p.program.Name()
		share := func(below string) string { return filepath.Join(dir, name, below) }
		man := share(fmt.Sprintf("man/man%d", p.section))
		bash := share("bash-completion/completions")
		zsh := share("zsh/site-functions")
		fish := share("fish/vendor_completions.d")
		for _, d := range []string{man, bash, zsh, fish} {
			if err := os.MkdirAll(d, 0o750); err != nil {
				return err
			}
		}
		if err := errors.Join(pages(man, p.program, p.section),
			p.program.GenBashCompletionFileV2(filepath.Join(bash, name), true),
			p.program.GenZshCompletionFile(filepath.Join(zsh, "_"+name)),
			p.program.GenFishCompletionFile(filepath.Join(fish, name+".fish"), true)); err != nil {
			return err
		}
	}
	return nil
}

func pages(dir string, c *cobra.Command, section int) error {
	m := flags.Manual{Command: c, Section: section, Version: daemon.CurrentBuild().Version,
		Files: files()[c.CommandPath()]}
	file := filepath.Join(dir, fmt.Sprintf("%s.%d", m.Name(), section))
	if err := os.WriteFile(file, []byte(m.Page()), 0o600); err != nil {
		return err
	}
	for _, below := range c.Commands() {
		if !below.IsAvailableCommand() && !below.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := pages(dir, below, section); err != nil {
			return err
		}
	}
	return nil
}

// files returns the files that packages install for the services, by program.
func files() map[string][][2]string {
	settings := func(service string) [][2]string {
		return [][2]string{
			{"/etc/unlocker/" + service + ".env", "The settings of the service " + service +
				": variables, as listed above. Systemd reads them as root."},
			{"/etc/unlocker/", "Certificates, keys and passwords, readable for the user " + service + "."},
		}
	}
	witness := append(settings("unlocker-witness"), [2]string{"/var/lib/unlocker-witness/",
		"The ids of the boots of this machine. Never copy it to another machine."})
	return map[string][][2]string{
		"unlocker": settings("unlocker"), "unlocker witness": witness, "mutexdash": settings("mutexdash"),
	}
}
