package flags_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// program is a command with all shared flags and one below it.
type program struct {
	root   *cobra.Command
	out    bytes.Buffer
	etcd   *etcdconn.Settings
	policy staleness.Policy
	mode   string
	ran    []string // what RunE saw
}

func newProgram() *program {
	p := &program{root: &cobra.Command{Use: "unlocker", Long: "Removes stale locks.", Args: cobra.NoArgs},
		policy: staleness.DefaultPolicy()}
	run := func(c *cobra.Command, _ []string) error {
		p.ran = append(p.ran, c.Name()+" "+p.mode)
		return nil
	}
	p.root.RunE = run
	fs := p.root.PersistentFlags()
	fs.StringVar(&p.mode, "policy", "", "what to do with stale locks")
	p.etcd = flags.Etcd(fs)
	flags.Locks(fs)
	flags.Log(fs, "info")
	flags.Policy(fs, &p.policy)
	flags.Web(fs, daemon.WebSettings{Address: ":10980"})
	fs.Int("count", 0, "how many")
	flags.NotNegative(fs, "count")
	fs.Duration("length", 0, "how long")
	flags.Positive(fs, "length")
	p.root.AddCommand(&cobra.Command{Use: "sweep", Short: "Sweep once", RunE: run, Args: cobra.NoArgs})
	p.root.SetOut(&p.out)
	p.root.SetErr(&p.out)
	return p
}

func (p *program) execute(t *testing.T, args ...string) error {
	t.Helper()
	if p.root.Annotations == nil {
		flags.Bind(p.root, "UNLOCKER")
	}
	return flags.Execute(t.Context(), p.root, args)
}

// typed are the arguments of a line as a shell has it. Variables may come first, and are set.
func typed(t *testing.T, line string) []string {
	t.Helper()
	args := strings.Fields(line)
	for len(args) > 0 {
		name, value, _ := strings.Cut(args[0], "=")
		if name != strings.ToUpper(name) {
			break
		}
		t.Setenv(name, value)
		args = args[1:]
	}
	return args
}

// ran is a program that ran with such a line.
func ran(t *testing.T, line string) *program {
	t.Helper()
	p := newProgram()
	proctest.Must(t, p.execute(t, typed(t, line)...))
	return p
}

func TestAbandonedLocksAreOnlyReportedByDefault(t *testing.T) {
	for word, unlock := range map[string]bool{"report": false, "unlock": true} {
		p := ran(t, "--sweep.abandoned="+word+" --sweep.abandoned-grace=0s")
		if p.policy.UnlockAbandoned != unlock || p.policy.AbandonedGrace != 0 {
			t.Errorf("%s: %+v", word, p.policy)
		}
	}
}

func TestPrecedenceIsFlagThenOwnVariableThenEtcdctlsThenDefault(t *testing.T) {
	const all = "ETCDCTL_ENDPOINTS=c:1,c:2 UNLOCKER_ETCD_ENDPOINTS=b:1,b:2 "
	for line, want := range map[string][]string{
		all + "--etcd.endpoints=a:1 --etcd.endpoints=a:2,a:3": {"a:1", "a:2", "a:3"},
		all:                         {"b:1", "b:2"},
		all + "sweep":               {"b:1", "b:2"},
		"ETCDCTL_ENDPOINTS=c:1,c:2": {"c:1", "c:2"},
		"ETCDCTL_ENDPOINTS=c:1 UNLOCKER_ETCD_ENDPOINTS=": {"c:1"}, // empty counts as unset
		"": {"127.0.0.1:2379"},
	} {
		t.Run(line, func(t *testing.T) {
			if got := ran(t, line).etcd.Endpoints; !slices.Equal(got, want) {
				t.Errorf("endpoints are %v, want %v", got, want)
			}
		})
	}
}

func TestPasswordNeedsItsUser(t *testing.T) {
	for line, want := range map[string]struct{ user, password, file string }{
		"ETCDCTL_USER=root:a:b":                          {"root", "a:b", ""},
		"ETCDCTL_USER=root ETCDCTL_PASSWORD=a":           {"root", "a", ""},
		"UNLOCKER_ETCD_USER=me UNLOCKER_ETCD_PASSWORD=a": {"me", "a", ""},
		"ETCDCTL_USER=root:a UNLOCKER_ETCD_PASSWORD=b":   {"root", "b", ""},
		"ETCDCTL_USER=root:a --etcd.password-file=f":     {"root", "", "f"},
		// Nobody else gets etcdctl's password.
		"ETCDCTL_USER=root:a --etcd.user=me":                                        {"me", "", ""},
		"UNLOCKER_ETCD_PASSWORD_FILE=f UNLOCKER_ETCD_PASSWORD=b ETCDCTL_PASSWORD=c": {"", "", "f"},
	} {
		t.Run(line, func(t *testing.T) {
			e := ran(t, line).etcd
			if e.User != want.user || e.Password != want.password || e.PasswordFile != want.file {
				t.Errorf("user %q, password %q, file %q", e.User, e.Password, e.PasswordFile)
			}
		})
	}
}

func TestUsageErrorsAreOneSentenceAndStatus2(t *testing.T) {
	for _, c := range []struct{ line, says string }{
		{"--etcd.endpoint=a:1", "there is no flag --etcd.endpoint: did you mean --etcd.endpoints?"},
		{"--quite-different", "there is no flag --quite-different"},
		{"-x", "there is no flag -x"},
		{"--etcd.user", "--etcd.user needs a value"},
		{"--etcd.request-timeout=soon", `--etcd.request-timeout cannot be "soon": want a duration such as 30s or 5m`},
		{"--etcd.request-timeout=-1s", "--etcd.request-timeout is -1s: it must not be negative"},
		{"--count=-1", "--count is -1: it must not be negative"},
		{"UNLOCKER_LENGTH=0s", "--length is 0s: it must be positive"},
		{"--log.level=loud", `--log.level cannot be "loud": it must be one of trace, debug, info`},
		{"--sweep.abandoned=remove", `--sweep.abandoned cannot be "remove": it must be report or unlock`},
		{"--locks.prefix=/", `--locks.prefix cannot be "/": it must be how keys begin, such as app/`},
		{"ETCDCTL_COMMAND_TIMEOUT=soon", `the variable ETCDCTL_COMMAND_TIMEOUT cannot be "soon": want a duration`},
		{"UNLOCKER_LOG_FORMAT=xml sweep", `the variable UNLOCKER_LOG_FORMAT cannot be "xml": it must be one of`},
		{"UNLOCKER_WEB_ENABLE_PPROF=maybe",
			`the variable UNLOCKER_WEB_ENABLE_PPROF cannot be "maybe": want true or false`},
		{"UNLOCKER_SWEEP_CLOCK_SKEW=5", `the variable UNLOCKER_SWEEP_CLOCK_SKEW cannot be "5": want a duration`},
		{"sweep extra", `unknown command "extra" for "unlocker sweep"`},
		{"swoop", `unknown command "swoop" for "unlocker"`},
	} {
		t.Run(c.says, func(t *testing.T) {
			p := newProgram()
			err := p.execute(t, typed(t, c.line)...)
			var usage *flags.UsageError
			if !errors.As(err, &usage) || usage.ExitCode() != 2 {
				t.Fatalf("the error is %v, want a usage error", err)
			}
			if !strings.HasPrefix(err.Error(), c.says) || !strings.HasPrefix(usage.Hint(), `see "unlocker`) {
				t.Errorf("it says %q and hints %q, want %q", err, usage.Hint(), c.says)
			}
			if p.out.Len() > 0 || len(p.ran) > 0 {
				t.Errorf("it ran %v and printed %s", p.ran, &p.out)
			}
		})
	}
}

// A command line that is refused says which format the error has.
func TestErrorsHaveTheFormatOfTheLog(t *testing.T) {
	for line, want := range map[string]string{
		"--nope --log.format=json":                        "json",
		"--log.level loud -x --log.format json":           "json",
		"UNLOCKER_LOG_FORMAT=json sweep extra":            "json",
		"UNLOCKER_LOG_FORMAT=json --log.format=console a": "console",
		"--log.format": "",
	} {
		t.Run(line, func(t *testing.T) {
			if got := flags.LogFormat("UNLOCKER", typed(t, line)); got != want {
				t.Errorf("the format is %q, want %q", got, want)
			}
		})
	}
}

func TestRuntimeErrorIsNotAUsageError(t *testing.T) {
	p := newProgram()
	broken := errors.New("broken")
	p.root.RunE = func(*cobra.Command, []string) error { return broken }
	var usage *flags.UsageError
	if err := p.execute(t); !errors.Is(err, broken) || errors.As(err, &usage) {
		t.Errorf("the error is %v (%T)", err, err)
	}
}

func TestHookSeesTheEnvironment(t *testing.T) {
	t.Setenv("UNLOCKER_POLICY", "alert-only")
	p := newProgram()
	var seen []string
	p.root.PersistentPreRun = func(c *cobra.Command, _ []string) { seen = append(seen, c.Name()+" "+p.mode) }
	for _, args := range [][]string{nil, {"sweep"}} {
		proctest.Must(t, p.execute(t, args...))
	}
	if want := []string{"unlocker alert-only", "sweep alert-only"}; !slices.Equal(seen, want) || len(p.ran) != 2 {
		t.Errorf("hooks saw %v, want %v; ran %v", seen, want, p.ran)
	}
}

func TestOnlySharedFlagsHaveVariables(t *testing.T) {
	t.Setenv("UNLOCKER_POLICY", "auto-unlock")
	t.Setenv("UNLOCKER_YES", "true")
	p := newProgram()
	yes := p.root.Commands()[0].Flags().Bool("yes", false, "do not ask")
	flags.BindShared(p.root, "UNLOCKER")
	proctest.Must(t, p.execute(t, "sweep"))
	if *yes || p.mode != "auto-unlock" {
		t.Errorf("variables set --yes to %v, and --policy to %q", *yes, p.mode)
	}
}

func TestHelpListsEveryFlagInGroups(t *testing.T) {
	p := ran(t, "--help")
	help := p.out.String()
	for _, want := range []string{
		"\nConnection to etcd:\n      --etcd.endpoints host:port\n          host:port of etcd's members, ",
		" [default 127.0.0.1:2379; also $ETCDCTL_ENDPOINTS]\n",
		" [also $UNLOCKER_ETCD_PASSWORD, $ETCDCTL_PASSWORD]\n",
		"\nHTTP server:\n", "\nLog:\n", "\nLocks:\n", "\nSweep:\n",
		"      --sweep.default-alert-after duration\n          when a lock without a readable alert time " +
			"alerts, after it " +
			"was first seen; 0s is never [default 1h]\n",
		"      --etcd.user name          name of the etcd user [also $ETCDCTL_USER]\n",
		"\nEnvironment: $UNLOCKER_POLICY for --policy, and so on.\n",
		"  sweep       Sweep once\n",
	} {
		if !strings.Contains(help, want) {
			t.Errorf("it does not show %q:\n%s", want, help)
		}
	}
	tellsOnce(t, p, help)
}

func TestHelpOfASubcommandNamesSharedFlags(t *testing.T) {
	for _, args := range [][]string{{"sweep", "--help"}, {"help", "sweep"}} {
		p := newProgram()
		fs := p.root.Commands()[0].Flags()
		fs.Bool("now", false, "at once")
		fs.Bool("later", false, "not at once")
		proctest.Must(t, p.execute(t, args...))
		help := p.out.String()
		for _, want := range []string{
			"\n      --now                     at once\n",
			"\nEnvironment: $UNLOCKER_NOW for --now, and so on.\n",
		} {
			if !strings.Contains(help, want) {
				t.Errorf("%v does not show %q:\n%s", args, want, help)
			}
		}
		tellsOnce(t, p, help)
	}
}

func tellsOnce(t *testing.T, p *program, help string) {
	t.Helper()
	p.root.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if n := strings.Count(help, " --"+f.Name+" ") + strings.Count(help, " --"+f.Name+"\n"); n != 1 {
			t.Errorf("--%s is listed %d times:\n%s", f.Name, n, help)
		}
	})
}

func TestCommandWithoutEnvironmentUsesOnlyItsCommandLine(t *testing.T) {
	t.Setenv("UNLOCKER_ETCD_USER", "eve")
	t.Setenv("ETCDCTL_ENDPOINTS", "elsewhere:2379")
	cmd := &cobra.Command{Use: "unlocker", RunE: func(*cobra.Command, []string) error { return nil }}
	etcd := flags.Etcd(cmd.Flags())
	flags.Bind(cmd, "UNLOCKER")
	if err := flags.Execute(t.Context(), flags.WithoutEnvironment(cmd),
		[]string{"--etcd.request-timeout=3s"}); err != nil {
		t.Fatal(err)
	}
	if etcd.User != "" || etcd.Endpoints[0] != "127.0.0.1:2379" || etcd.RequestTimeout.Seconds() != 3 {
		t.Errorf("the settings are %+v", *etcd)
	}
}

func TestManualMatchesTheCommand(t *testing.T) {
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
