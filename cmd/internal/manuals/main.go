// Manuals writes what packages have beside the programs: pages for man(1), and completions for bash, zsh and fish.
package main

import (
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
		share := filepath.Join(dir, p.program.Name())
		man := filepath.Join(share, "man", fmt.Sprintf("man%d", p.section))
		if err := pages(man, p.program, p.section); err != nil {
			return err
		}
		if err := completions(share, p.program); err != nil {
			return err
		}
	}
	return nil
}

// pages writes a page for a command and for each below it.
func pages(dir string, c *cobra.Command, section int) error {
	m := flags.Manual{Command: c, Section: section, Version: daemon.CurrentBuild().Version,
		Files: files()[c.CommandPath()]}
	if err := file(dir, fmt.Sprintf("%s.%d", m.Name(), section), m.Page()); err != nil {
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

// files are those that packages install for the services.
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

func completions(share string, program *cobra.Command) error {
	name := program.Name()
	for path, generate := range map[string]func(string) error{
		"bash-completion/completions/" + name: func(to string) error {
			return program.GenBashCompletionFileV2(to, true)
		},
		"zsh/site-functions/_" + name: program.GenZshCompletionFile,
		"fish/vendor_completions.d/" + name + ".fish": func(to string) error {
			return program.GenFishCompletionFile(to, true)
		},
	} {
		to := filepath.Join(share, path)
		if err := os.MkdirAll(filepath.Dir(to), 0o750); err != nil {
			return err
		}
		if err := generate(to); err != nil {
			return err
		}
	}
	return nil
}

func file(dir, name, text string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
}
