// Package pod is a witness in Kubernetes: it watches pods, and states that a holder is dead when its container or pod
// has ended. Package podproof judges the evidence.
package pod

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/witness/pod/podproof"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// lookEvery is how often all locks are judged without a change: time alone makes some suspicious, and failed writes
	// are retried.
	lookEvery = 5 * time.Second
	// lookPause is the shortest time between two such looks, and lookShare bounds the part of the time that they take.
	// The locks of a pod that changed are judged without delay.
	lookPause = 500 * time.Millisecond
	lookShare = 10
	// writeTimeout is how long one statement may take.
	writeTimeout = 5 * time.Second
	// proveAgain and suspectAgain are how long a statement must be missing before it is written again: its lease may
	// have ended, or it was lost. A suspicion waits longer, because another witness may have dispelled it with better
	// knowledge.
	proveAgain   = 5 * time.Minute
	suspectAgain = 24 * time.Hour
)

// Config connects a witness to the view and the store.
type Config struct {
	By         string   // the witness's instance
	Namespaces []string // whose pods are watched; all if empty

	Locks   func() iter.Seq[*metadata.Record]
	Lock    func(name string) *metadata.Record // nil if it is not held
	Changed func() <-chan struct{}
	Clock   func() time.Duration // of [metadata.Seen]

	// State and Suspect write a statement; an error that is [metadata.ErrChanged] means that the hold is over.
	State   func(context.Context, metadata.Statement) error
	Suspect func(context.Context, metadata.Statement) error
	// Dispel deletes the suspicion about the hold with this uuid.
	Dispel func(ctx context.Context, uuid string) error

	Explain func(error) string // an error of the store as a sentence
	Log     zerolog.Logger
}

// Witness makes statements about the holders of locks from their pods. It is also a Prometheus collector.
type Witness struct {
	config Config
	api    *API
	pods   *pods
	feeds  map[string]*feed // by namespace; "" is all
	*metrics
	byPod map[string][]string // names of locks by the key of their holders' pods, as of the last look at all
	told  map[hold]told       // what this witness has written

	unsaid string // why the last statement could not be written

	mu       sync.Mutex
	troubles map[string]*trouble // by namespace

	doubts chan doubt // about pods that have to be confirmed
}

// hold identifies one hold of a lock.
type hold struct {
	uuid  string
	token int64
}

// told is the last statement about a hold that this witness wrote.
type told struct {
	certainty podproof.Certainty
	cause     string
	at        time.Duration // on the clock of [metadata.Seen]
}

// recent reports whether this was written recently, so that it need not be written again.
func (t told) recent(v podproof.Finding, now time.Duration) bool {
	again := suspectAgain
	if v.Certainty == podproof.Proof {
		again = proveAgain
	}
	return t.certainty == v.Certainty && t.cause == v.Cause && now-t.at < again
}

// New returns a witness that watches nothing until it runs.
func New(c Config, api *API) *Witness {
	w := &Witness{config: c, api: api, pods: newPods(c.Clock), feeds: map[string]*feed{},
		told: map[hold]told{}, troubles: map[string]*trouble{}, doubts: make(chan doubt, maxDoubts)}
	w.metrics = newMetrics(w)
	for _, namespace := range c.Namespaces {
		w.feeds[namespace] = newFeed(w.pods)
	}
	if len(w.feeds) == 0 {
		w.feeds[""] = newFeed(w.pods)
	}
	return w
}

// Run watches pods and writes statements until ctx ends.
func (w *Witness) Run(ctx context.Context) error {
	var feeding sync.WaitGroup
	defer feeding.Wait()
	for namespace, f := range w.feeds {
		feeding.Go(func() {
			w.api.reflect(ctx, namespace, f, func(err error) { w.heard(ctx, namespace, f, err) })
		})
	}
	feeding.Go(func() { w.confirm(ctx) })
	next := time.NewTimer(0)
	defer next.Stop()
	var changed <-chan struct{}
	var soonest time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.pods.changed:
			w.lookAt(ctx, w.pods.takeTouched())
		case <-changed:
			changed = nil
			next.Reset(time.Until(soonest))
		case <-next.C:
			changed = w.config.Changed()
			began := time.Now()
			w.look(ctx)
			soonest = time.Now().Add(max(lookPause, lookShare*time.Since(began)))
			next.Reset(lookEvery)
		}
	}
}

// heard notes the outcome of a request to the API server, and logs when trouble begins, changes and ends.
func (w *Witness) heard(ctx context.Context, namespace string, f *feed, err error) {
	if ctx.Err() != nil {
		return
	}
	now := w.api.explain(err, namespace)
	if now != nil {
		f.fail()
		w.metrics.failures.WithLabelValues(now.kind).Inc()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.troubles[namespace]
	w.troubles[namespace] = now
	switch {
	case now != nil && (before == nil || before.kind != now.kind):
		w.config.Log.Warn().Str("trouble", now.text).
			Msg("the witness in Kubernetes is blind: locks of dead holders stay until their deadlines")
	case now == nil && before != nil:
		w.config.Log.Info().Msg("the API server of Kubernetes answers again")
	}
}

// look judges all locks and writes new statements.
func (w *Witness) look(ctx context.Context) {
	w.byPod = map[string][]string{}
	told := map[hold]told{}
	for r := range w.config.Locks() {
		if r.Process == nil || r.Token == 0 {
			continue
		}
		key := podKey(r.Process.PodUID, r.Process.PodNamespace, r.Process.PodName)
		if key == "" {
			continue
		}
		w.byPod[key] = append(w.byPod[key], r.Name)
		w.tell(ctx, r)
		if ctx.Err() != nil {
			return
		}
		if said, ok := w.told[holdOf(r)]; ok {
			told[holdOf(r)] = said
		}
	}
	w.told = told
}

// lookAt judges the locks of pods.
func (w *Witness) lookAt(ctx context.Context, pods map[string]bool) {
	for key := range pods {
		for _, lock := range w.byPod[key] {
			if r := w.config.Lock(lock); r != nil && r.Process != nil && r.Token != 0 && ctx.Err() == nil {
				w.tell(ctx, r)
			}
		}
	}
}

// podKey identifies the pod of a record: by its UID, or else by its name. It is empty if the record names none.
func podKey(uid, namespace, podName string) string {
	switch {
	case uid != "":
		return uid
	case namespace != "" && podName != "":
		return namespace + "/" + podName
	}
	return ""
}

func holdOf(r *metadata.Record) hold { return hold{r.UUID, r.Token} }

// judge finds the pod of the record's holder and returns what is known about its end.
func (w *Witness) judge(r *metadata.Record) podproof.Finding {
	process := r.Process
	s := podproof.Evidence{Now: w.config.Clock()}
	s.Pod, s.Namesake = w.pods.find(process.PodUID, process.PodNamespace, process.PodName)
	if s.Namesake == s.Pod {
		s.Namesake = nil
	}
	if process.PodUID == "" {
		_, s.Namesake = w.pods.find("", process.PodNamespace, process.PodName)
	}
	if since := w.watched(process.PodNamespace); since != podproof.Never {
		s.Absent = s.Now - max(since, r.Seen.First)
	}
	return podproof.Judge(r, s)
}

// watched returns since when all pods of a namespace have been known without a break; podproof.Never if they are not. A
// record without a namespace could be of any.
func (w *Witness) watched(namespace string) time.Duration {
	if f := w.feed(namespace); f != nil {
		return f.unbroken()
	}
	return podproof.Never
}

// feed returns the feed with the pods of a namespace; nil if they are not watched.
func (w *Witness) feed(namespace string) *feed {
	if f, all := w.feeds[""]; all {
		return f
	}
	return w.feeds[namespace]
}

// tell judges a hold and writes a new statement about it.
func (w *Witness) tell(ctx context.Context, r *metadata.Record) {
	if r.Death != nil {
		return
	}
	v := w.judge(r)
	said := w.told[holdOf(r)]
	now := w.config.Clock()
	switch v.Certainty {
	case podproof.Proof:
		if !said.recent(v, now) {
			w.write(ctx, r, v, w.config.State)
		}
	case podproof.Suspicion:
		known := r.Suspicion != nil && !(mine(r.Suspicion) && r.Suspicion.Cause != v.Cause)
		if !known && !said.recent(v, now) {
			w.write(ctx, r, v, w.config.Suspect)
		}
	case podproof.Runs:
		w.doubt(r)
		if mine(r.Suspicion) {
			w.dispel(ctx, r)
		}
	case podproof.Nothing:
	}
}

// mine reports whether the suspicion comes from a witness in Kubernetes.
func mine(s *metadata.Statement) bool { return s != nil && s.Witness == metadata.WitnessKubernetes }

// write writes a statement. If that fails, the next look tries again.
func (w *Witness) write(ctx context.Context, r *metadata.Record, v podproof.Finding,
	to func(context.Context, metadata.Statement) error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	s := statement(r, v, w.config.By, time.Now())
	err := to(ctx, s)
	if w.failed(err) {
		return
	}
	w.told[holdOf(r)] = told{v.Certainty, v.Cause, w.config.Clock()}
	if err != nil {
		return // the hold is over
	}
	w.metrics.statements.WithLabelValues(v.Certainty.String(), v.Cause).Inc()
	w.config.Log.Info().Str("lock", r.Name).Str("uuid", r.UUID).Int64("token", r.Token).Str("cause", v.Cause).
		Str("how", s.How).Str("certainty", v.Certainty.String()).Msg("the holder of this lock has ended")
}

func (w *Witness) dispel(ctx context.Context, r *metadata.Record) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if w.failed(w.config.Dispel(ctx, r.UUID)) {
		return
	}
	delete(w.told, holdOf(r)) // a later suspicion is new
	w.config.Log.Info().Str("lock", r.Name).Str("uuid", r.UUID).Int64("token", r.Token).
		Msg("the holder of this lock runs: the suspicion is dispelled")
}

// failed reports whether a statement could not be written, and logs the first of consecutive failures.
func (w *Witness) failed(err error) bool {
	if err == nil || errors.Is(err, metadata.ErrChanged) {
		w.unsaid = ""
		return false
	}
	w.metrics.failures.WithLabelValues("etcd").Inc()
	if text := w.config.Explain(err); text != w.unsaid {
		w.unsaid = text
		w.config.Log.Warn().Str("trouble", text).
			Msg("what is known of a dead holder cannot be written; it is tried again")
	}
	return true
}

// statement returns the verdict as a statement.
func statement(r *metadata.Record, v podproof.Finding, by string, now time.Time) metadata.Statement {
	s := metadata.Statement{
		Lock: r.Name, UUID: r.UUID, Token: r.Token, Cause: v.Cause, How: v.How,
		Witness: metadata.WitnessKubernetes, By: by, At: metadata.Time{Time: now},
	}
	if v.End == nil {
		return s
	}
	s.EndedAt = metadata.Time{Time: v.End.FinishedAt}
	s.Detail = v.End.Reason
	if name, ok := signals()[v.End.Signal]; ok {
		s.Signal = name
	} else {
		s.ExitCode = &v.End.ExitCode
	}
	return s
}

// signals returns the names of the signals that end processes, of those that a runtime reports.
func signals() map[int]string {
	return map[int]string{1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
		9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM"}
}

// synced reports whether all pods are known and current.
func (w *Witness) synced() bool {
	for _, f := range w.feeds {
		if !f.answers() {
			return false
		}
	}
	return true
}

// Trouble says why the witness does not know all pods, or does not learn of their changes; empty if it does.
func (w *Witness) Trouble() string {
	if w.synced() {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var reasons []string // of the namespaces for which the API server gave one
	for _, namespace := range slices.Sorted(maps.Keys(w.troubles)) {
		if t := w.troubles[namespace]; t != nil {
			reasons = append(reasons, t.text)
		}
	}
	if reasons == nil {
		return "not all pods are known yet"
	}
	return strings.Join(reasons, "; ")
}
