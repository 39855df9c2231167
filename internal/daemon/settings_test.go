package daemon_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

func TestBadWebSettingsAreRefused(t *testing.T) {
	junk := filepath.Join(t.TempDir(), "web.yml")
	proctest.Must(t, os.WriteFile(junk, []byte("nonsense: true\n"), 0o600))
	proctest.Must(t, daemon.WebSettings{Address: "127.0.0.1:0", OpsAddress: "127.0.0.1:0"}.Check())
	for says, s := range map[string]daemon.WebSettings{
		`"8080" is not of the form host:port`: {Address: "8080"},
		`--web.listen-address ":99999"`:       {Address: ":99999"},
		`--web.probe-address "10982"`:         {Address: ":80", ProbeAddress: "10982"},
		"--web.ops-address are both :80":      {Address: ":80", OpsAddress: ":80"},
		"form https://host/path":              {Address: ":80", ExternalURL: "locks.example"},
		"more than scheme":                    {Address: ":80", ExternalURL: "https://locks.example/?a=b"},
		"does not begin with a slash":         {Address: ":80", RoutePrefix: "locks"},
		"no such file":                        {Address: ":80", ConfigFile: filepath.Join(t.TempDir(), "missing")},
		"the web configuration " + junk:       {Address: ":80", ConfigFile: junk},
	} {
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want something about %q", s, err, says)
		}
	}
}

func TestRoutePrefixComesFromTheExternalURLUnlessGiven(t *testing.T) {
	for _, c := range []struct{ url, prefix, want string }{
		{"", "", ""},
		{"https://locks.example", "", ""},
		{"https://locks.example/", "", ""},
		{"https://example/locks/", "", "/locks"},
		{"https://example/locks", "/", ""},
		{"https://example/locks", "/a/b/", "/a/b"},
	} {
		s := daemon.WebSettings{Address: ":80", ExternalURL: c.url, RoutePrefix: c.prefix}
		proctest.Must(t, s.Check())
		if got := s.Prefix(); got != c.want {
			t.Errorf("external URL %q and route prefix %q make %q, want %q", c.url, c.prefix, got, c.want)
		}
	}
}

func TestLogIsOneJSONObjectPerLine(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	proctest.Must(t, err)
	defer file.Close()
	log := daemon.Logger(daemon.LogSettings{Level: "info", Format: "auto"}, file)
	log.Debug().Msg("too quiet")
	log.Warn().Str("lock", "a\n\x1b[31m").Msg("said")
	_, err = file.Seek(0, 0)
	proctest.Must(t, err)
	lines := bufio.NewScanner(file)
	lines.Scan()
	var entry map[string]string
	proctest.Must(t, json.Unmarshal(lines.Bytes(), &entry))
	if entry["level"] != "warn" || entry["message"] != "said" || entry["lock"] != "a\n\x1b[31m" {
		t.Errorf("the entry is %v", entry)
	}
	at, err := time.Parse(time.RFC3339, entry["time"])
	if err != nil || at.Location() != time.UTC || time.Since(at).Abs() > time.Minute {
		t.Errorf("the time is %q: %v", entry["time"], err)
	}
	if lines.Scan() {
		t.Errorf("more is logged: %s", lines.Text())
	}
}
