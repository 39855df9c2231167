package e2e

import (
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// TestAWrongSettingIsOneSentence starts programs with settings that cannot work: which there are is tested beside each.
// The program says in one sentence which and why, and ends at once with status 2: nobody has to wait for a daemon to
// find out.
func TestAWrongSettingIsOneSentence(t *testing.T) {
	t.Parallel()
	ends := func(program string, says []string, args ...string) {
		t.Run(program+" "+strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			oneSentence(t, command(t, program, args...), 2, program, says...)
		})
	}
	for program, args := range map[string][]string{
		"unlocker":  {"--policy=alert-only", "--web.listen-address=127.0.0.1:0"},
		"mutexdash": {"--web.listen-address=127.0.0.1:0", "--web.ops-address=127.0.0.1:0"},
		"mutexctl":  {"list"},
	} {
		for wrong, says := range map[string][]string{
			"--etcd.endpoint=x":              {"--etcd.endpoint", "--etcd.endpoints"},
			"--etcd.endpoints=nonsense":      {"nonsense", "host:port"},
			"--etcd.dial-timeout=-1s":        {"dial timeout", "negative"},
			"--etcd.cacert=/nowhere/ca.crt":  {"/nowhere/ca.crt", "no such file"},
			"--etcd.password-file=/dev/null": {"password", "no user"},
			"--locks.prefix=/":               {"prefix", "empty"},
		} {
			ends(program, says, append(args[:len(args):len(args)], wrong)...)
		}
	}
	ends("unlocker", []string{"--policy", "alert-only", "auto-unlock"})
	for wrong, says := range map[string][]string{
		"--policy=delete":                                    {"--policy", "delete", "alert-only"},
		"--policy=alert-only --sweep.dry-run":                {"--sweep.dry-run", "--policy=alert-only"},
		"--policy=auto-unlock --sweep.min-warning=0":         {"warning", "retry"},
		"--policy=alert-only --metrics.lock-series=some":     {"--metrics.lock-series", "some", "alerting"},
		"--policy=alert-only --metrics.lock-series-limit=-1": {"--metrics.lock-series-limit", "negative"},
		"--policy=alert-only now":                            {"now"},
		"--policy=alert-only --web.listen-address=here":      {"here", "host:port"},
		"--policy=alert-only --web.config.file=/nowhere.yml": {"/nowhere.yml"},
	} {
		ends("unlocker", says, strings.Fields(wrong)...)
	}
}

// oneSentence expects one line of output, with these words in it.
func oneSentence(t *testing.T, o proctest.Result, code int, program string, says ...string) {
	t.Helper()
	if o.Code != code || o.Stdout != "" {
		t.Errorf("exit status %d, want %d; stdout %q", o.Code, code, o.Stdout)
	}
	if !strings.HasPrefix(o.Stderr, program) || strings.Count(o.Stderr, "\n") != 1 || len(o.Stderr) > 400 {
		t.Errorf("not one sentence: %q", o.Stderr)
	}
	for _, word := range says {
		if !strings.Contains(o.Stderr, word) {
			t.Errorf("%q does not say %q", o.Stderr, word)
		}
	}
}
