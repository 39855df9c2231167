// Package pod is the witness in Kubernetes. It watches pods, and writes a proof to etcd when the container or pod of a
// lock's holder has ended. Package podproof judges the evidence.
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
	// judgeEvery is how often all locks are judged even if nothing changes: some become suspicious with time, and
	// failed writes are retried.
	judgeEvery = 5 * time.Second
	// judgePause is the shortest time between two such rounds. judgeShare is how many times the duration of a round
	// must pass before the next.
	judgePause = 100 * time.Millisecond
	judgeShare = 10
	// writeTimeout is how long one statement may take.
	writeTimeout = 5 * time.Second
	// proveAgain and suspectAgain are how long after a statement it is written again if etcd does not have it: its
	// lease may have ended. A suspicion waits longer, because a witness that knows better may have withdrawn it.
	proveAgain   = 5 * time.Minute
	suspectAgain = 24 * time.Hour
)

// Config connects a witness to the view and the store.
type Config struct {
	Instance   string   // name of this witness, in its statements
	Namespaces []string // whose pods are watched; all if empty

	Locks   func() iter.Seq[*metadata.Record]
	Changed func() <-chan struct{}
	Clock   func() time.Duration // of [metadata.Seen]

	// RecordProof and RecordSuspicion write a statement. An error that wraps [metadata.ErrChanged] means that the hold
	// is over.
	RecordProof     func(context.Context, metadata.Statement) error
	RecordSuspicion func(context.Context, metadata.Statement) error
	// WithdrawSuspicion deletes the suspicion about the hold with this uuid.
	WithdrawSuspicion func(ctx context.Context, uuid string) error

	Explain func(error) string // an error of the store as a sentence
	Log     zerolog.Logger
}

// Witness watches pods, and proves or suspects the end of holders in them. It is also a Prometheus collector.
type Witness struct {
	config Config
	api    *API
	pods   *pods
	feeds  map[string]*feed // by namespace; "" is all
	*metrics
	written map[hold]writtenStatement // what this witness has written

	writeProblem string // why the last statement could not be written

	mu       sync.Mutex
	problems map[string]*apiProblem // by namespace

	unconfirmed chan unconfirmedPod // pods that have to be confirmed
}

type hold struct {
	uuid  string
	token int64
}

// writtenStatement is the last statement that this witness wrote about a hold.
type writtenStatement struct {
	certainty podproof.Certainty
	cause     string
	at        time.Duration // on the clock of [metadata.Seen]
}

// isRecent reports whether the same was written so recently that it need not be written again.
func (s writtenStatement) isRecent(f podproof.Finding, now time.Duration) bool {
	again := suspectAgain
	if f.Certainty == podproof.Proof {
		again = proveAgain
	}
	return s.certainty == f.Certainty && s.cause == f.Cause && now-s.at < again
}

// New returns a witness. It watches nothing before Run.
func New(c Config, api *API) *Witness {
	w := &Witness{config: c, api: api, pods: newPods(c.Clock), feeds: map[string]*feed{},
		written: map[hold]writtenStatement{}, problems: map[string]*apiProblem{},
		unconfirmed: make(chan unconfirmedPod, maxUnconfirmed)}
	w.metrics = newMetrics(w)
	for _, namespace := range c.Namespaces {
		w.feeds[namespace] = newFeed(w.pods)
	}
	if len(w.feeds) == 0 {
		w.feeds[""] = newFeed(w.pods)
	}
	return w
}

// Run watches pods and writes statements until ctx ends, then returns nil.
func (w *Witness) Run(ctx context.Context) error {
	var watches sync.WaitGroup
	defer watches.Wait()
	for namespace, f := range w.feeds {
		watches.Go(func() {
			w.api.watchPods(ctx, namespace, f, func(err error) { w.recordResponse(ctx, namespace, f, err) })
		})
	}
	watches.Go(func() { w.confirmPods(ctx) })
	next := time.NewTimer(0)
	defer next.Stop()
	var changed <-chan struct{}
	var soonest time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.pods.changed:
			next.Reset(time.Until(soonest))
		case <-changed:
			changed = nil
			next.Reset(time.Until(soonest))
		case <-next.C:
			changed = w.config.Changed()
			began := time.Now()
			w.judgeAll(ctx)
			soonest = time.Now().Add(max(judgePause, judgeShare*time.Since(began)))
			next.Reset(judgeEvery)
		}
	}
}

// recordResponse notes the outcome of a request to the API server, and logs when a problem begins, changes and ends.
func (w *Witness) recordResponse(ctx context.Context, namespace string, f *feed, err error) {
	if ctx.Err() != nil {
		return
	}
	now := w.api.explain(err, namespace)
	if now != nil {
		f.recordFailure()
		w.metrics.failures.WithLabelValues(now.kind).Inc()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.problems[namespace]
	w.problems[namespace] = now
	switch {
	case now != nil && (before == nil || before.kind != now.kind):
		w.config.Log.Warn().Str("problem", now.text).
			Msg("cannot watch pods: locks of dead holders stay until their deadlines")
	case now == nil && before != nil:
		w.config.Log.Info().Msg("watching pods again")
	}
}

// judgeAll judges all holders, writes new statements, and forgets those about ended holds.
func (w *Witness) judgeAll(ctx context.Context) {
	written := map[hold]writtenStatement{}
	for r := range w.config.Locks() {
		if r.Process == nil {
			continue
		}
		w.stateFinding(ctx, r)
		if ctx.Err() != nil {
			return
		}
		if s, ok := w.written[holdOf(r)]; ok {
			written[holdOf(r)] = s
		}
	}
	w.written = written
}

func holdOf(r *metadata.Record) hold { return hold{r.UUID, r.Token} }

// judge finds the pod of the record's holder, and judges the evidence.
func (w *Witness) judge(r *metadata.Record) podproof.Finding {
	process := r.Process
	s := podproof.Evidence{Now: w.config.Clock()}
	s.Pod, s.Namesake = w.pods.find(process.PodUID, process.PodNamespace, process.PodName)
	if s.Namesake == s.Pod {
		s.Namesake = nil
	}
	if f := w.feed(process.PodNamespace); f != nil {
		if since := f.completeSince(); since != podproof.Never {
			s.Absent = s.Now - max(since, r.Seen.First)
		}
	}
	return podproof.Judge(r, s)
}

// feed returns the feed that has the pods of a namespace, which may be empty; nil if they are not watched.
func (w *Witness) feed(namespace string) *feed {
	if f, all := w.feeds[""]; all {
		return f
	}
	return w.feeds[namespace]
}

// stateFinding judges a holder, and writes or withdraws a statement if the finding is new.
func (w *Witness) stateFinding(ctx context.Context, r *metadata.Record) {
	if r.Death != nil {
		return
	}
	f := w.judge(r)
	last := w.written[holdOf(r)]
	now := w.config.Clock()
	switch f.Certainty {
	case podproof.Proof:
		if !last.isRecent(f, now) {
			w.writeStatement(ctx, r, f, w.config.RecordProof)
		}
	case podproof.Suspicion:
		known := r.Suspicion != nil && !(isFromKubernetes(r.Suspicion) && r.Suspicion.Cause != f.Cause)
		if !known && !last.isRecent(f, now) {
			w.writeStatement(ctx, r, f, w.config.RecordSuspicion)
		}
	case podproof.Runs:
		w.requestConfirmation(r)
		if isFromKubernetes(r.Suspicion) {
			w.withdrawSuspicion(ctx, r)
		}
	case podproof.Nothing:
	}
}

// isFromKubernetes reports whether the statement comes from a witness in Kubernetes.
func isFromKubernetes(s *metadata.Statement) bool {
	return s != nil && s.Witness == metadata.WitnessKubernetes
}

// writeStatement writes a statement. If that fails, the next round of judgeAll tries again.
func (w *Witness) writeStatement(ctx context.Context, r *metadata.Record, f podproof.Finding,
	to func(context.Context, metadata.Statement) error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	s := statement(r, f, w.config.Instance, time.Now())
	err := to(ctx, s)
	if w.writeFailed(err) {
		return
	}
	w.written[holdOf(r)] = writtenStatement{f.Certainty, f.Cause, w.config.Clock()}
	if err != nil {
		return // the hold is over
	}
	w.metrics.statements.WithLabelValues(f.Certainty.String(), f.Cause).Inc()
	w.config.Log.Info().Str("lock", r.Name).Str("uuid", r.UUID).Int64("token", r.Token).Str("cause", f.Cause).
		Str("how", s.Reason).Str("certainty", f.Certainty.String()).Msg("the holder of this lock has ended")
}

func (w *Witness) withdrawSuspicion(ctx context.Context, r *metadata.Record) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if w.writeFailed(w.config.WithdrawSuspicion(ctx, r.UUID)) {
		return
	}
	delete(w.written, holdOf(r)) // a later suspicion is new
	w.config.Log.Info().Str("lock", r.Name).Str("uuid", r.UUID).Int64("token", r.Token).
		Msg("the holder of this lock is running: suspicion withdrawn")
}

// writeFailed reports whether err means that a statement could not be written, and logs the first of consecutive
// failures.
func (w *Witness) writeFailed(err error) bool {
	if err == nil || errors.Is(err, metadata.ErrChanged) {
		w.writeProblem = ""
		return false
	}
	w.metrics.failures.WithLabelValues("etcd").Inc()
	if text := w.config.Explain(err); text != w.writeProblem {
		w.writeProblem = text
		w.config.Log.Warn().Str("problem", text).
			Msg("cannot record that a holder is dead; retrying")
	}
	return true
}

func statement(r *metadata.Record, f podproof.Finding, by string, now time.Time) metadata.Statement {
	s := metadata.Statement{
		Name: r.Name, UUID: r.UUID, Token: r.Token, Cause: f.Cause, Reason: f.Reason,
		Witness: metadata.WitnessKubernetes, By: by, At: metadata.Time{Time: now},
	}
	if f.End == nil {
		return s
	}
	s.EndedAt = metadata.Time{Time: f.End.FinishedAt}
	s.Detail = f.End.Reason
	if name, ok := signals()[f.End.Signal]; ok {
		s.Signal = name
	} else {
		s.ExitCode = &f.End.ExitCode
	}
	return s
}

// signals returns the names of the signals that a container runtime reports as the cause of an end.
func signals() map[int]string {
	return map[int]string{1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
		9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM"}
}

// isSynced reports whether all pods are known and their watches are working.
func (w *Witness) isSynced() bool {
	for _, f := range w.feeds {
		if !f.isSynced() {
			return false
		}
	}
	return true
}

// Problem returns why the witness does not know all pods, or is not up to date; empty if it is.
func (w *Witness) Problem() string {
	if w.isSynced() {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var reasons []string // of the namespaces for which the API server gave one
	for _, namespace := range slices.Sorted(maps.Keys(w.problems)) {
		if t := w.problems[namespace]; t != nil {
			reasons = append(reasons, t.text)
		}
	}
	if reasons == nil {
		return "not all pods are known yet"
	}
	return strings.Join(reasons, "; ")
}
