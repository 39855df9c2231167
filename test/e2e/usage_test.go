package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// TestAWrongSettingIsOneSentence starts every program with settings that cannot work. Each says in one sentence which
// and why, and ends at once with status 2: nobody has to wait for a daemon to find out.
func TestAWrongSettingIsOneSentence(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	shared := []struct {
		name string
		args []string
		says []string
	}{
		{"a flag that does not exist", []string{"--nonsense"}, []string{"--nonsense"}},
		{"a flag with a typing error", []string{"--etcd.endpoint=x"}, []string{"--etcd.endpoint", "--etcd.endpoints"}},
		{"a flag without its value", []string{"--etcd.user"}, []string{"--etcd.user", "value"}},
		{"no time", []string{"--etcd.dial-timeout=soon"}, []string{"--etcd.dial-timeout", "soon"}},
		{"a negative time", []string{"--etcd.dial-timeout=-1s"}, []string{"dial timeout", "negative"}},
		{"no endpoint", []string{"--etcd.endpoints=nonsense"}, []string{"nonsense", "host:port"}},
		{"endpoints of two kinds", []string{"--etcd.endpoints=http://a:1,https://b:1"}, []string{"differ", "scheme"}},
		{"TLS files without TLS", []string{"--etcd.endpoints=http://a:1", "--etcd.cacert=" + empty},
			[]string{"does not use TLS", "CA certificate"}},
		{"a file that is not there", []string{"--etcd.cacert=/nonexistent/ca.crt"},
			[]string{"/nonexistent/ca.crt", "no such file"}},
		{"a file that cannot be read", []string{"--etcd.user=u", "--etcd.password-file=/"},
			[]string{"password", "directory"}},
		{"a file with nothing in it", []string{"--etcd.cacert=" + empty}, []string{empty, "no certificate"}},
		{"a certificate without its key", []string{"--etcd.endpoints=https://a:1", "--etcd.cert=" + empty},
			[]string{"without its key"}},
		{"a password without a user", []string{"--etcd.password-file=" + empty}, []string{"password", "no user"}},
		{"a user without a password", []string{"--etcd.user=u"}, []string{"u", "no password"}},
		{"a prefix that is everything", []string{"--locks.prefix=/"}, []string{"prefix", "empty"}},
		{"no log level", []string{"--log.level=loud"}, []string{"--log.level", "loud", "debug"}},
	}
	for program, args := range map[string][]string{
		"unlocker":  {"--policy=alert-only", "--web.listen-address=127.0.0.1:0"},
		"mutexdash": {"--web.listen-address=127.0.0.1:0", "--web.ops-address=127.0.0.1:0"},
		"mutexctl":  {"list"},
	} {
		for _, c := range shared {
			t.Run(program+" with "+c.name, func(t *testing.T) {
				t.Parallel()
				oneSentence(t, command(t, program, slices.Concat(args, c.args)...), 2, program, c.says...)
			})
		}
	}
}

func TestAWrongPolicyIsOneSentence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		says []string
	}{
		"no policy":      {nil, []string{"--policy", "alert-only", "auto-unlock"}},
		"another policy": {[]string{"--policy=delete"}, []string{"--policy", "delete", "alert-only"}},
		"a dry run of nothing": {[]string{"--policy=alert-only", "--sweep.dry-run"},
			[]string{"--sweep.dry-run", "--policy=alert-only"}},
		"no warning": {[]string{"--policy=auto-unlock", "--sweep.min-warning=0"},
			[]string{"warning", "retry"}},
		"a negative warning": {[]string{"--policy=auto-unlock", "--sweep.min-warning=-1s"},
			[]string{"warning"}},
		"a negative skew": {[]string{"--policy=auto-unlock", "--sweep.clock-skew=-1s"},
			[]string{"clock skew", "negative"}},
		"a removal before its alert": {[]string{"--policy=auto-unlock", "--sweep.default-auto-unlock-after=1m"},
			[]string{"shorter", "alert"}},
		"an empty exclusion": {[]string{"--policy=auto-unlock", "--sweep.exclude="},
			[]string{"exclude", "empty"}},
		"no series": {[]string{"--policy=alert-only", "--metrics.lock-series=some"},
			[]string{"--metrics.lock-series", "some", "alerting"}},
		"a negative limit": {[]string{"--policy=alert-only", "--metrics.lock-series-limit=-1"},
			[]string{"--metrics.lock-series-limit", "negative"}},
		"no history": {[]string{"--policy=alert-only", "--history.retention=0"},
			[]string{"--history.retention"}},
		"an argument": {[]string{"--policy=alert-only", "now"}, []string{"now"}},
		"no address": {[]string{"--policy=alert-only", "--web.listen-address=here"},
			[]string{"here", "host:port"}},
		"a web config that is not there": {[]string{"--policy=alert-only", "--web.config.file=/nonexistent/web.yml"},
			[]string{"/nonexistent/web.yml"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			oneSentence(t, command(t, "unlocker", c.args...), 2, "unlocker", c.says...)
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
