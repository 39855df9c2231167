package flagdocs

import (
	"errors"
	"os"
	"testing"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/cmd/internal/mutexdash"
	"github.com/clustermutex/unlocker/cmd/internal/unlocker"
	"github.com/clustermutex/unlocker/internal/build"
	"github.com/clustermutex/unlocker/internal/cli"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

func TestEveryProgramSaysItsVersionInOneShape(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"--version"}} {
		for name, root := range map[string]func(out *os.File) *cobra.Command{
			"mutexctl":  func(out *os.File) *cobra.Command { return cli.Command(cli.Process{Stdout: out}) },
			"mutexdash": func(*os.File) *cobra.Command { return mutexdash.Command() },
			"unlocker":  func(*os.File) *cobra.Command { return unlocker.Command() },
		} {
			out, err := os.CreateTemp(t.TempDir(), "")
			proctest.Must(t, err)
			c := root(out)
			c.SetOut(out)
			c.SetArgs(args)
			err = errors.Join(c.ExecuteContext(t.Context()), out.Close())
			said, unread := os.ReadFile(out.Name())
			want := build.Current().Line(name) + "\n"
			if err != nil || unread != nil || string(said) != want {
				t.Errorf("%s %s says %q, want %q (%v, %v)", name, args, said, want, err, unread)
			}
		}
	}
}
