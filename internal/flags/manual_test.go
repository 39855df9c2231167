package flags_test

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/flags"
)

func TestAManualShowsTheCommandAsItIs(t *testing.T) {
	root := &cobra.Command{Use: "tool", Run: func(*cobra.Command, []string) {}}
	cmd := &cobra.Command{
		Use: "do NAME", Short: "Do it", Run: func(*cobra.Command, []string) {},
		Long:    "A name may contain \\x1b.\n'Quoted' lines\n.begin like macros.\n\n  a list\n  of lines",
		Example: "  tool do -x 'a b'",
	}
	cmd.Flags().StringP("out", "o", "here", "`file` to write")
	root.AddCommand(cmd)
	flags.Bind(root, "TOOL")
	page := flags.Manual{
		Command: cmd, Section: 1, Version: "v1.2.3", Files: [][2]string{{"/etc/tool", "Its settings."}},
	}.Page()
	for _, want := range []string{
		`.TH "TOOL\-DO" "1" "" "unlocker v1.2.3"`, "tool\\-do \\- Do it\n",
		"A name may contain \\ex1b.\n\\&'Quoted' lines\n" +
			"\\&.begin like macros.\n.PP\n.nf\n  a list\n  of lines\n.fi\n",
		"\\fB\\-o, \\-\\-out\\fR \\fIfile\\fR\nfile to write\n.br\nDefault: here\n.br\nEnvironment: TOOL_OUT\n",
		".I /etc/tool\nIts settings.\n", "  tool do \\-x 'a b'\n", ".BR tool (1)\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	page = flags.Manual{Command: root, Section: 1}.Page()
	if want := ".SH COMMANDS\n.TP\n.BR tool\\-do (1)\nDo it\n"; !strings.Contains(page, want) {
		t.Errorf("no %q in\n%s", want, page)
	}
}
