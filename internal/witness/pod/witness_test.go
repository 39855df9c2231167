package pod_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/internal/witness/pod"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestMain(m *testing.M) {
	proctest.Overlap()
	m.Run()
}

// apiServer answers like the Kubernetes API server, for pods only. test/kube uses a real one.
type apiServer struct {
	*httptest.Server

	mu      sync.Mutex
	events  []string // of the watch, in order
	added   []string // the pods in them
	changed chan struct{}
	status  int    // of all answers, if it is not 0
	now     string // the answer to a request for a pod
	asked   int    // the number of such requests
}

// startAPIServer starts a server that knows one pod, and returns its current state to requests.
func startAPIServer(t *testing.T, now string) *apiServer {
	t.Helper()
	a := &apiServer{changed: make(chan struct{}), now: now}
	a.send("ADDED", now)
	a.send("BOOKMARK", `{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"10",`+
		`"annotations":{"k8s.io/initial-events-end":"true"}}}`) // that is all
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

// ServeHTTP implements [http.Handler]: every watch starts with all events, as with sendInitialEvents.
func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	status := a.status
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if status != 0 {
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`,
			strings.ReplaceAll(http.StatusText(status), " ", ""), status)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/namespaces/shop/pods/worker-0") {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.asked++
		fmt.Fprintln(w, a.now)
		return
	}
	if r.URL.Query().Get("watch") == "" { // after a watch was refused, a client lists
		a.mu.Lock()
		defer a.mu.Unlock()
		fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"10"},"items":[%s]}`,
			strings.Join(a.added, ","))
		return
	}
	for sent := 0; ; sent++ {
		event, ok := a.event(r.Context(), sent)
		if !ok {
			return
		}
		fmt.Fprintln(w, event)
		w.(http.Flusher).Flush()
	}
}

func (a *apiServer) event(ctx context.Context, i int) (string, bool) {
	for {
		a.mu.Lock()
		changed := a.changed
		if i < len(a.events) {
			defer a.mu.Unlock()
			return a.events[i], true
		}
		a.mu.Unlock()
		select {
		case <-ctx.Done():
			return "", false
		case <-changed:
		}
	}
}

// send adds an event to the watch.
func (a *apiServer) send(kind, object string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events = append(a.events, fmt.Sprintf(`{"type":%q,"object":%s}`, kind, object))
	if kind == "ADDED" {
		a.added = append(a.added, object)
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *apiServer) refuse(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status = status
}

// podIn returns a pod in JSON, with many members that do not matter here.
func podIn(phase, state string) string {
	return `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"shop","name":"worker-0","uid":"u1",
"resourceVersion":"11","labels":{"app":"worker"},"annotations":{"long":"text"},"managedFields":[{"manager":"kubelet"}]},
"spec":{"restartPolicy":"Always","nodeName":"n","containers":[{"name":"worker","image":"i","resources":{}}]},
"status":{"phase":"` + phase + `","conditions":[{"type":"Ready","status":"True"}],"containerStatuses":[{"name":"worker",
"containerID":"containerd://1","restartCount":0,"state":` + state + `,"lastState":{}}]}}`
}

const (
	runs = `{"running":{"startedAt":"2026-01-01T10:00:00Z"}}`
	over = `{"terminated":{"exitCode":137,"reason":"OOMKilled","startedAt":"2026-01-01T10:00:00Z",
"finishedAt":"2026-01-01T12:00:00Z","containerID":"containerd://1"}}`
)

// store is where the witness writes.
type store struct {
	mu      sync.Mutex
	locks   []*metadata.Record
	changed chan struct{} // closed when locks change; nil until requested
	err     error
	tries   int
	said    []metadata.Statement
	dubbed  []metadata.Statement
	taken   []string     // uuids of dispelled suspicions
	passed  atomic.Int64 // extra time that has passed, in nanoseconds
}

func (s *store) add(to *[]metadata.Statement) func(context.Context, metadata.Statement) error {
	return func(_ context.Context, statement metadata.Statement) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tries++
		if s.err == nil {
			*to = append(*to, statement)
		}
		return s.err
	}
}

func (s *store) hold(r ...*metadata.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.locks = r
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

func (s *store) change() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

func (s *store) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// held is a lock that the pod's container took an hour after its start.
func held() *metadata.Record {
	return &metadata.Record{Name: "invoices", UUID: "00000000-0000-4000-8000-000000000001", Token: 7,
		LockedAt: time.Date(2026, 1, 1, 11, 0, 0, 0, time.UTC),
		Process:  &metadata.Process{PodNamespace: "shop", PodName: "worker-0", PodUID: "u1", Container: "worker"}}
}

// watch starts a witness and returns it with its log.
func watch(t *testing.T, a *apiServer, s *store, namespaces ...string) (*pod.Witness, *proctest.Log) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c"}}},
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": a.URL}}}})
	proctest.Must(t, err)
	proctest.Must(t, os.WriteFile(file, config, 0o600))
	api, err := pod.Connect(file)
	proctest.Must(t, err)
	log := &proctest.Log{}
	began := time.Now()
	w := pod.New(pod.Config{
		Instance: "eu-1", Namespaces: namespaces,
		Locks: func() iter.Seq[*metadata.Record] {
			s.mu.Lock()
			defer s.mu.Unlock()
			return slices.Values(s.locks)
		},
		Changed:     s.change,
		Clock:       func() time.Duration { return time.Since(began) + time.Duration(s.passed.Load()) },
		RecordProof: s.add(&s.said), RecordSuspicion: s.add(&s.dubbed),
		WithdrawSuspicion: func(_ context.Context, uuid string) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.taken = append(s.taken, uuid)
			return s.err
		},
		Explain: func(err error) string { return err.Error() }, Log: zerolog.New(log),
	}, api)
	proctest.Go(t, w.Run)
	return w, log
}

// running starts a witness that has seen the pod run, and returns its API server, store and log.
func running(t *testing.T, locks ...*metadata.Record) (*apiServer, *store, *pod.Witness, *proctest.Log) {
	t.Helper()
	t.Parallel()
	a := startAPIServer(t, podIn("Running", runs))
	s := &store{locks: locks}
	w, log := watch(t, a, s)
	shows(t, w, "unlocker_kubernetes_synced 1")
	shows(t, w, "unlocker_kubernetes_pods 1")
	return a, s, w, log
}

// eventually waits until the store satisfies a condition.
func (s *store) eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	proctest.Eventually(t, what, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !is() {
			return fmt.Errorf("stated: %+v; suspected: %+v; dispelled: %v", s.said, s.dubbed, s.taken)
		}
		return nil
	})
}

func TestDeathIsStatedOnceWithItsDetails(t *testing.T) {
	a, s, w, _ := running(t, held())
	a.send("MODIFIED", podIn("Running", over))
	a.send("MODIFIED", podIn("Running", over))
	s.eventually(t, "the statement", func() bool { return len(s.said) > 0 })
	got := s.said[0]
	if got.Cause != metadata.CauseContainerEnded || got.Name != "invoices" || got.UUID != held().UUID ||
		got.Token != 7 || got.By != "eu-1" || got.Witness != metadata.WitnessKubernetes || *got.ExitCode != 137 ||
		got.Detail != "OOMKilled" || !got.EndedAt.Equal(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v", got)
	}
	a.send("DELETED", podIn("Running", over))
	shows(t, w, "unlocker_kubernetes_pods 0")
	if s.tries != 1 {
		t.Errorf("stated %d times", s.tries)
	}
	shows(t, w, `unlocker_kubernetes_statements_total{cause="container_ended",certainty="proof"} 1`)
}

// An API server may send nothing for a long time if nothing happens, so the next event may be old.
func TestHoldSeenAfterALongSilenceCanBeProvenDead(t *testing.T) {
	a, s, w, _ := running(t)
	late := s.holdLate()
	proctest.Eventually(t, "the pod to be confirmed", func() error {
		if !w.Confirmed("u1", late.Seen.First) {
			return errors.New("it is not")
		}
		return nil
	})
	a.send("MODIFIED", podIn("Running", over))
	s.eventually(t, "the statement", func() bool { return len(s.said)+len(s.dubbed) > 0 })
	if len(s.said) != 1 {
		t.Errorf("stated %+v, suspected %+v", s.said, s.dubbed)
	}
}

// holdLate takes a lock that is seen after ten minutes.
func (s *store) holdLate() *metadata.Record {
	s.passed.Store(int64(10 * time.Minute))
	late := held()
	late.Seen.First = 10 * time.Minute
	s.hold(late)
	return late
}

// The container may have been restarted before the hold was seen, without the watch reporting it yet.
func TestPodThatDiffersFromTheWatchIsNotConfirmed(t *testing.T) {
	t.Parallel()
	for about, answer := range map[string]string{
		"its container has ended": podIn("Running", over),
		"another start of it":     strings.ReplaceAll(podIn("Running", runs), "containerd://1", "containerd://2"),
		"another pod":             strings.ReplaceAll(podIn("Running", runs), `"u1"`, `"u2"`),
	} {
		t.Run(about, func(t *testing.T) { isNotConfirmed(t, answer) })
	}
}

func isNotConfirmed(t *testing.T, answer string) {
	a, s, w, _ := running(t)
	a.mu.Lock()
	a.now = answer
	a.mu.Unlock()
	late := s.holdLate()
	proctest.Eventually(t, "two questions", func() error { // the second after the first was answered
		s.hold(late)
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.asked < 2 {
			return fmt.Errorf("asked %d times", a.asked)
		}
		return nil
	})
	if w.Confirmed("u1", late.Seen.First) {
		t.Error("confirmed")
	}
	a.send("MODIFIED", podIn("Running", over))
	s.eventually(t, "the suspicion", func() bool { return len(s.said)+len(s.dubbed) > 0 })
	if len(s.said) != 0 {
		t.Errorf("stated %+v", s.said)
	}
}

func TestFailedStatementIsRetried(t *testing.T) {
	a, s, _, log := running(t, held())
	s.fail(errors.New("etcd is away"))
	a.send("MODIFIED", podIn("Running", over))
	s.eventually(t, "a try", func() bool { return s.tries > 0 })
	s.fail(nil)
	a.send("MODIFIED", podIn("Running", over))
	s.eventually(t, "the statement", func() bool { return len(s.said) == 1 })
	if said := strings.Count(log.String(), "etcd is away"); said != 1 {
		t.Errorf("the failure is logged %d times", said)
	}
}

func TestEndedHoldIsLeftAlone(t *testing.T) {
	a, s, w, log := running(t, held())
	s.fail(fmt.Errorf("state: %w", metadata.ErrChanged))
	a.send("MODIFIED", podIn("Running", over))
	s.eventually(t, "a try", func() bool { return s.tries == 1 })
	a.send("DELETED", podIn("Running", over))
	shows(t, w, "unlocker_kubernetes_pods 0")
	if s.tries != 1 || strings.Contains(log.String(), "cannot") {
		t.Errorf("%d tries: %s", s.tries, log)
	}
}

func TestRunningHolderIsNotSuspected(t *testing.T) {
	_, s, _, _ := running(t)
	r := held()
	r.Suspicion = &metadata.Statement{Cause: metadata.CausePodNeverSeen, Witness: metadata.WitnessKubernetes}
	byHost := held()
	byHost.UUID = "00000000-0000-4000-8000-000000000002"
	byHost.Suspicion = &metadata.Statement{Witness: metadata.WitnessHost}
	s.hold(r, byHost)
	s.eventually(t, "the end of the suspicion", func() bool { return len(s.taken) > 0 })
	if s.taken[0] != r.UUID {
		t.Errorf("dispelled: %v", s.taken)
	}
}

// A node that was lost and came back may be lost again.
func TestDispelledSuspicionCanReturn(t *testing.T) {
	t.Parallel()
	lost := strings.Replace(podIn("Running", runs), `"phase":"Running"`, `"phase":"Running","reason":"NodeLost"`, 1)
	a := startAPIServer(t, lost)
	s := &store{locks: []*metadata.Record{held()}}
	watch(t, a, s)
	suspected := held()
	s.eventually(t, "a suspicion", func() bool {
		if len(s.dubbed) == 1 {
			first := s.dubbed[0]
			suspected.Suspicion = &first
		}
		return suspected.Suspicion != nil
	})
	s.hold(suspected)
	a.send("MODIFIED", podIn("Running", runs))
	s.eventually(t, "its end", func() bool { return len(s.taken) > 0 })
	s.hold(held())
	a.send("MODIFIED", lost)
	s.eventually(t, "another suspicion", func() bool { return len(s.dubbed) == 2 })
}

func TestKnownDeathIsNotStatedAgain(t *testing.T) {
	stated := held()
	stated.Death = &metadata.Statement{Cause: metadata.CauseContainerEnded}
	last := held()
	last.Name = "last"
	a, s, _, _ := running(t, stated, last)
	a.send("MODIFIED", podIn("Running", over))
	s.eventually(t, "the other statement", func() bool { return len(s.said) > 0 })
	if s.said[0].Name != "last" {
		t.Errorf("stated: %+v", s.said)
	}
}

func TestProblemIsReportedInASentence(t *testing.T) {
	t.Parallel()
	for status, c := range map[int]struct{ kind, says string }{
		http.StatusForbidden: {"forbidden",
			"the API server does not let us watch the pods of namespace shop: the role " +
				"needs get, list and watch for pods"},
		http.StatusUnauthorized: {"unauthorized", "the API server does not accept our token or certificate: it " +
			"answers 401 Unauthorized"},
		http.StatusServiceUnavailable: {"overloaded", "the API server cannot answer at present"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			a := startAPIServer(t, podIn("Running", runs))
			a.refuse(status)
			s := &store{}
			w, log := watch(t, a, s, "shop")
			proctest.Eventually(t, "the sentence", func() error {
				if got := w.Problem(); !strings.Contains(got, c.says) {
					return fmt.Errorf("the problem is %q", got)
				}
				return nil
			})
			shows(t, w, "unlocker_kubernetes_synced 0")
			a.refuse(0)
			shows(t, w, "unlocker_kubernetes_synced 1")
			shows(t, w, "unlocker_kubernetes_pods 1")
			if got := w.Problem(); got != "" {
				t.Errorf("the problem is %q", got)
			}
			if said := strings.Count(log.String(), c.says); said != 1 || strings.Count(log.String(), "\n") != 2 {
				t.Errorf("it is logged %d times: %s", said, log)
			}
		})
	}
}

func TestMissingClusterIsReported(t *testing.T) {
	for _, kubeconfig := range []string{"", "/not/there"} {
		want := fmt.Sprintf("not run in a pod, and the kubeconfig %q does not exist, or is empty", kubeconfig)
		if _, err := pod.Connect(kubeconfig); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	if _, err := pod.Connect(""); err == nil || !strings.Contains(err.Error(), "serviceaccount/token") {
		t.Errorf("in a pod without a token: %v", err)
	}
}

// shows waits until the witness's metrics contain a line.
func shows(t *testing.T, w *pod.Witness, line string) {
	t.Helper()
	proctest.Eventually(t, line, func() error {
		name, _, _ := strings.Cut(line, " ")
		name, _, _ = strings.Cut(name, "{")
		text, err := testutil.CollectAndFormat(w, expfmt.TypeTextPlain, name)
		if err == nil && !strings.Contains(string(text), line+"\n") {
			err = errors.New(string(text))
		}
		return err
	})
}

// Events after a break may have happened at any time since the API server was last heard.
func TestEventsAfterABreakMayDateFromIt(t *testing.T) {
	t.Parallel()
	now := time.Minute
	w := pod.New(pod.Config{Clock: func() time.Duration { return now }}, nil)
	is := func(state string) {
		t.Helper()
		err := w.Feed(`{"metadata": {"namespace": "shop", "name": "worker-0", "uid": "u1"},
			"spec": {"containers": [{"name": "worker"}]}, "status": {"phase": "Running", "containerStatuses": [
			{"name": "worker", "containerID": "c1", "state": ` + state + `}]}}`)
		if err = errors.Join(err, w.CatchUp()); err != nil {
			t.Fatal(err)
		}
	}
	is(`{"running": {"startedAt": "2026-01-01T00:00:00Z"}}`)
	if got := w.Problem(); got != "" {
		t.Errorf("everything is known, and the problem is %q", got)
	}
	now += 5 * time.Second
	w.Fail()
	if w.Problem() == "" {
		t.Error("there is no problem while the API server does not answer")
	}
	now += 5 * time.Second
	is(`{"terminated": {"containerID": "c1", "finishedAt": "2026-01-01T00:01:03Z"}}`)
	if got := w.Pod("u1").Containers[0]; got.End == nil || got.EndedSince != time.Minute {
		t.Errorf("it has ended since %v: %+v", got.EndedSince, got)
	}
}
