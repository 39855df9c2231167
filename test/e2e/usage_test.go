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
	for started, says := range map[string][]string{
		"mutexctl list --etcd.endpoint=x":                             {"--etcd.endpoint", "--etcd.endpoints"},
		"mutexctl list --etcd.dial-timeout=-1s":                       {"dial timeout", "negative"},
		"mutexctl list --etcd.password-file=/dev/null":                {"password", "no user"},
		"mutexdash --etcd.cacert=/nowhere/ca.crt":                     {"/nowhere/ca.crt", "no such file"},
		"mutexdash --locks.prefix=/":                                  {"prefix", "empty"},
		"unlocker":                                                    {"--policy", "alert-only", "auto-unlock"},
		"unlocker --policy=alert-only --etcd.endpoints=nonsense":      {"nonsense", "host:port"},
		"unlocker --policy=delete":                                    {"--policy", "delete", "alert-only"},
		"unlocker --policy=alert-only --sweep.dry-run":                {"--sweep.dry-run", "--policy=alert-only"},
		"unlocker --policy=auto-unlock --sweep.min-warning=0":         {"warning", "retry"},
		"unlocker --policy=alert-only --metrics.lock-series=some":     {"--metrics.lock-series", "some", "alerting"},
		"unlocker --policy=alert-only --metrics.lock-series-limit=-1": {"--metrics.lock-series-limit", "negative"},
		"unlocker --policy=alert-only now":                            {"now"},
		"unlocker --policy=alert-only --web.listen-address=here":      {"here", "host:port"},
		"unlocker --policy=alert-only --web.config.file=/nowhere.yml": {"/nowhere.yml"},
	} {
		t.Run(started, func(t *testing.T) {
			t.Parallel()
			words := strings.Fields(started)
			oneSentence(t, command(t, words[0], words[1:]...), 2, words[0], says...)
		})
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
