package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// isMutexdev makes this program mutexdev.
const isMutexdev = "TEST_IS_MUTEXDEV"

// TestMain lets this program be the holder that the demo starts, and mutexdev.
func TestMain(m *testing.M) {
	if os.Getenv(isMutexdev) != "" || len(os.Args) > 1 && os.Args[1] == holderName {
		main()
	}
	os.Exit(m.Run())
}

// started is a mutexdev that runs.
type started struct {
	*proctest.Task
	guide chan string
	said  string // the guide, once it is read
}

// Write takes the guide, which is written at once.
func (s *started) Write(p []byte) (int, error) {
	s.guide <- string(p)
	return len(p), nil
}

func start(t *testing.T, args ...string) *started {
	t.Helper()
	s := &started{guide: make(chan string, 1)}
	cmd := command()
	cmd.SetOut(s)
	etcd := proctest.FreeAddr(t)
	unlocker := proctest.FreeAddr(t)
	web := proctest.FreeAddr(t)
	s.Task = proctest.Go(t, func(ctx context.Context) error {
		return flags.Execute(ctx, cmd, append([]string{
			"--etcd.listen-address=" + etcd, "--unlocker.listen-address=" + unlocker, "--web.listen-address=" + web,
			"--log.level=error",
		}, args...))
	})
	return s
}

// addresses waits until everything is up and returns the addresses.
func (s *started) addresses(t *testing.T) (dashboard, unlocker string) {
	t.Helper()
	select {
	case guide := <-s.guide:
		s.said = guide
		find := func(what string) string {
			found := regexp.MustCompile(what + ` +http://([0-9.:]+)/`).FindStringSubmatch(guide)
			if found == nil {
				t.Fatalf("the guide lacks the address of the %s:\n%s", what, guide)
			}
			return found[1]
		}
		return find("dashboard"), find("unlocker")
	case <-s.Done():
		t.Fatalf("it ended: %v", s.Wait(t))
	}
	return "", ""
}

func get(t *testing.T, url string) (body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	proctest.Eventually(t, url, func() (err error) {
		_, body, err = proctest.Get(client, url)
		return err
	})
	return body
}

func TestANewcomerSeesLocksAndAnAutoUnlock(t *testing.T) {
	defer goleak.VerifyNone(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Setenv("ETCDCTL_CACERT", "/etc/ssl/of/some/other/etcd.pem") // of the newcomer's daily work
	dev := start(t, "--speed=50")
	dashboard, unlocker := dev.addresses(t)
	if status := get(t, "http://"+dashboard+"/api/v1/status"); !strings.Contains(status, `"unlockers":[{`) {
		t.Errorf("the guide is printed before the dashboard knows the unlocker: %s", status)
	}

	states := map[string]map[string]bool{}
	etcdtest.Eventually(t, "all demo locks were shown, one alerted, one is malformed, somebody waits", func() bool {
		var page struct {
			Data []struct {
				Name, State string
				Waiters     int
			}
		}
		proctest.Must(t, json.Unmarshal([]byte(get(t, "http://"+dashboard+"/api/v1/locks")), &page))
		for _, l := range page.Data {
			if states[l.Name] == nil {
				states[l.Name] = map[string]bool{}
			}
			states[l.Name][l.State] = true
			if l.Waiters > 0 {
				states[l.Name]["waited for"] = true
			}
		}
		return states["billing/invoice-run"]["held"] && states["billing/invoice-run"]["waited for"] &&
			states["catalog/import/eu"]["held"] &&
			states["nightly/database dump"]["held"] && states["reports/weekly"]["malformed"] &&
			states["search/reindex"]["alerting"] &&
			states[forgottenLock]["alerting"] && states["media/transcoders#1"]["waited for"] &&
			states["catalog/prices#2"]["held"] && states["catalog/prices"]["held"] &&
			states["reports/statistics"]["held"]
	})
	etcdtest.Eventually(t, "the forgotten lock was auto-unlocked", func() bool {
		metrics := get(t, "http://"+unlocker+"/metrics")
		return regexp.MustCompile(`(?m)^unlocker_lock_last_auto_unlock_timestamp_seconds{.*lock="` + forgottenLock +
			`"`).MatchString(metrics)
	})
	if canWitness() {
		// without waiting for its deadline
		proctest.Answers(t, "http://"+dashboard+"/api/v1/history?q="+killedLock, http.StatusOK,
			`"name":"`+killedLock+`"`, `"how":"abandoned"`)
	}
	proctest.Answers(t, "http://"+dashboard+"/lock?name="+forgottenLock, http.StatusOK, "rotateKeys") // taken again

	dev.Stop(t)
	if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestBadSettingsAreReportedInOneSentence(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	proctest.Must(t, err)
	defer taken.Close()
	for name, c := range map[string]struct{ arg, says string }{
		"a port that is taken": {"--web.listen-address=" + taken.Addr().String(),
			"the dashboard cannot listen on " + taken.Addr().String() + ": something else does"},
		"no time at all": {"--speed=0", "--speed is 0: it must be between 0.1 and 50"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := start(t, c.arg).Wait(t); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want a sentence with %q", err, c.says)
			}
		})
	}
}

func TestDefaultPortInUseIsReplacedAndReported(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	proctest.Must(t, err)
	defer taken.Close()
	a := &address{what: "etcd", value: taken.Addr().String(), requested: func() bool { return false }}
	got, err := a.free()
	if err != nil || got == taken.Addr().String() || a.inUse != taken.Addr().String() {
		t.Errorf("it got %s, %v, and says that %q was taken", got, err, a.inUse)
	}
}

func TestClientsWithoutGRPCCanUseItsEtcd(t *testing.T) {
	t.Parallel()
	dev := start(t, "--no-demo")
	dev.addresses(t)
	endpoint := regexp.MustCompile(`(?m)^ +etcd +(\S+)`).FindStringSubmatch(dev.said)
	if endpoint == nil {
		t.Fatalf("the guide lacks the address of etcd:\n%s", dev.said)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
	answer, err := client.Post("http://"+endpoint[1]+"/v3/kv/range", "application/json",
		strings.NewReader(`{"key":"YQ=="}`))
	proctest.Must(t, err)
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("the JSON gateway answers with %s", answer.Status)
	}
}

func TestNothingOutlivesAKilledMutexdev(t *testing.T) {
	t.Parallel()
	cmd := proctest.Self(isMutexdev, "yes")
	cmd.Args = []string{"mutexdev", "--etcd.listen-address=127.0.0.1:0", "--unlocker.listen-address=127.0.0.1:0",
		"--web.listen-address=127.0.0.1:0", "--log.level=error"}
	cmd.Env = append(cmd.Env, "TMPDIR="+t.TempDir(), "ETCDCTL_ENDPOINTS=https://daily-work:2379")
	dev := proctest.Start(t, cmd)
	address := regexp.MustCompile(`dashboard +http://([0-9.:]+)/`)
	var dashboard []string
	etcdtest.Eventually(t, "the guide is there", func() bool {
		dashboard = address.FindStringSubmatch(dev.Output())
		return dashboard != nil
	})
	pid := 0
	if canWitness() {
		etcdtest.Eventually(t, "a process of its own holds the lock whose holder the demo kills", func() bool {
			page := get(t, "http://"+dashboard[1]+"/api/v1/lock?name="+killedLock)
			if found := regexp.MustCompile(`"pid": ?([0-9]+)`).FindStringSubmatch(page); found != nil {
				pid, _ = strconv.Atoi(found[1])
			}
			return pid != 0
		})
	}
	dev.Kill()
	if canWitness() {
		etcdtest.Eventually(t, "that process ends, too", func() bool { return ended(pid) })
	}
}

// ended reports whether a process is gone, or a zombie that nobody has waited for. It needs Linux.
func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}
