package pod

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/clustermutex/unlocker/internal/witness/pod/podproof"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// quiet is how long a watch may be silent before it no longer counts as unbroken: a living one sends a bookmark
	// about every minute.
	quiet = 90 * time.Second
	// calm is how long a watch may be silent before the pods of new holds are requested. If nothing happens, an API
	// server has no bookmarks to send, unless its etcd reports its progress.
	calm = time.Minute
	// keepGone is how long a pod that is gone is remembered, for locks that are read after its end.
	keepGone = 15 * time.Minute
	// maxGone bounds the number of remembered pods that are gone.
	maxGone = 20_000
)

// pods holds the known pods, from one watch for each namespace. It is safe for concurrent use.
type pods struct {
	clock   func() time.Duration
	changed chan struct{} // has one element when something changed

	mu     sync.Mutex
	byUID  map[string]*podproof.Pod
	byName map[name]string // UID of the pod that has the name now, or had it last
	gone   []string        // UIDs, the longest gone first

	touched map[string]bool // keys of pods that changed, as in podKey, until they are taken
}

type name struct{ namespace, name string }

func newPods(clock func() time.Duration) *pods {
	return &pods{clock: clock, changed: make(chan struct{}, 1), byUID: map[string]*podproof.Pod{},
		byName: map[name]string{}, touched: map[string]bool{}}
}

// find returns the pod with the UID and the one with the name; nil if there is none.
func (p *pods) find(uid, namespace, podName string) (pod, namesake *podproof.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if uid != "" {
		pod = p.byUID[uid]
	}
	return pod, p.byUID[p.byName[name{namespace, podName}]]
}

// confirm records the API server's answer to a request for a pod, sent no earlier than at.
func (p *pods) confirm(answer podproof.Pod, at time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.byUID[answer.UID]
	if known == nil || known.Gone != podproof.Never {
		return
	}
	if confirmed := podproof.Confirm(known, answer, at); confirmed != nil {
		p.byUID[answer.UID] = confirmed
	}
}

func (p *pods) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.byUID) - len(p.gone)
}

// put stores the current state of a pod. The caller holds mu.
func (p *pods) put(now podproof.Pod, confirmed, at time.Duration) {
	known := p.byUID[now.UID]
	if known != nil && known.Gone != podproof.Never {
		return // a UID is never used again
	}
	p.byUID[now.UID] = podproof.Observe(known, now, confirmed, at)
	p.byName[name{now.Namespace, now.Name}] = now.UID
	p.touch(&now)
}

// vanish notes that a pod is gone. The caller holds mu.
func (p *pods) vanish(uid string, at time.Duration, lost bool) {
	known := p.byUID[uid]
	if known == nil || known.Gone != podproof.Never {
		return
	}
	p.byUID[uid] = podproof.MarkGone(known, at, lost)
	p.gone = append(p.gone, uid)
	p.touch(known)
	p.forget(at)
}

// forget drops pods that have been gone for long. The caller holds mu.
func (p *pods) forget(at time.Duration) {
	for len(p.gone) > 0 && (len(p.gone) > maxGone || at-p.byUID[p.gone[0]].Gone > keepGone) {
		old := p.byUID[p.gone[0]]
		delete(p.byUID, old.UID)
		if n := (name{old.Namespace, old.Name}); p.byName[n] == old.UID {
			delete(p.byName, n)
		}
		p.gone = p.gone[1:]
	}
}

// takeTouched returns the keys of the pods that have changed since the last call.
func (p *pods) takeTouched() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	touched := p.touched
	p.touched = map[string]bool{}
	return touched
}

// touch notes that a pod changed. The caller holds mu.
func (p *pods) touch(changed *podproof.Pod) {
	p.touched[changed.UID] = true
	p.touched[podKey("", changed.Namespace, changed.Name)] = true
}

// announce wakes readers that wait for a change.
func (p *pods) announce() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// feed stores what the watch of one namespace, or of all, reports: a [cache.ReflectorStore].
type feed struct {
	pods *pods

	mu    sync.Mutex
	uids  map[string]bool // of the existing pods of this feed
	since time.Duration   // since when it has been complete and current; podproof.Never before it is complete
	heard time.Duration   // when the API server was heard from last

	broken bool // the API server has not answered since then
	// behind means that there was a break, and neither a list nor a bookmark has come since: new events may have
	// happened during the break. Up to the moment settled, all events were known.
	behind  bool
	settled time.Duration
}

func newFeed(p *pods) *feed {
	return &feed{pods: p, uids: map[string]bool{}, since: podproof.Never}
}

// hear notes that the API server was heard from, and returns the moment up to which the known events were complete. The
// caller holds mu.
func (f *feed) hear(at time.Duration) (confirmed time.Duration) {
	if at-f.heard > quiet {
		f.fallBehind()
	}
	f.heard = at
	f.broken = false
	if f.behind {
		return f.settled
	}
	return at
}

// catchUp notes that all events are known. The caller holds mu and has called hear.
func (f *feed) catchUp(at time.Duration) {
	if f.behind || f.since == podproof.Never {
		f.since = at
	}
	f.behind = false
}

// fallBehind begins a break, unless there is one. The caller holds mu.
func (f *feed) fallBehind() {
	if !f.behind {
		f.behind = true
		f.settled = f.heard
	}
}

// fail notes that the API server did not answer.
func (f *feed) fail() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fallBehind()
	f.broken = true
}

// answers reports whether the pods are known and the API server answers.
func (f *feed) answers() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.since != podproof.Never && !f.broken && f.pods.clock()-f.heard <= quiet
}

// covers reports whether the next event will have happened after moment: the API server has been heard from since, or
// its silence is too short to mean anything.
func (f *feed) covers(moment time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.behind {
		return f.settled >= moment
	}
	return f.heard >= moment || f.pods.clock()-f.heard < calm
}

// unbroken returns since when the feed has been complete and current: podproof.Never if it is not.
func (f *feed) unbroken() time.Duration {
	if !f.answers() {
		return podproof.Never
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.behind {
		return podproof.Never
	}
	return f.since
}

// Add implements [cache.ReflectorStore].
func (f *feed) Add(obj any) error { return f.Update(obj) }

// Update implements [cache.ReflectorStore].
func (f *feed) Update(obj any) error { return f.apply(obj, false) }

// Delete implements [cache.ReflectorStore]. The object is the last state of the pod.
func (f *feed) Delete(obj any) error { return f.apply(obj, true) }

func (f *feed) apply(obj any, gone bool) error {
	p, ok := obj.(*pod)
	if !ok {
		return fmt.Errorf("got a %T instead of a pod", obj)
	}
	now := p.brief()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods.mu.Lock()
	defer f.pods.mu.Unlock()
	at := f.pods.clock()
	f.pods.put(now, f.hear(at), at)
	f.uids[now.UID] = true
	if gone {
		f.pods.vanish(now.UID, at, false)
		delete(f.uids, now.UID)
	}
	f.pods.announce()
	return nil
}

// Replace implements [cache.ReflectorStore]: the list has all existing pods. The events before it were not watched.
func (f *feed) Replace(list []any, _ string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods.mu.Lock()
	defer f.pods.mu.Unlock()
	f.fallBehind()
	at := f.pods.clock()
	confirmed := f.hear(at)
	uids := make(map[string]bool, len(list))
	for _, obj := range list {
		p, ok := obj.(*pod)
		if !ok {
			return fmt.Errorf("got a %T instead of a pod", obj)
		}
		now := p.brief()
		f.pods.put(now, confirmed, at)
		uids[now.UID] = true
	}
	for uid := range f.uids {
		if !uids[uid] {
			f.pods.vanish(uid, at, true)
		}
	}
	f.uids = uids
	f.catchUp(at)
	f.pods.announce()
	return nil
}

// Resync implements [cache.ReflectorStore].
func (f *feed) Resync() error { return nil }

// Bookmark implements [cache.ReflectorBookmarkStore]: all changes up to now have arrived.
func (f *feed) Bookmark(string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.pods.clock()
	f.hear(at)
	f.catchUp(at)
	return nil
}

// Transformer implements [cache.TransformingStore]: each pod of a list is stripped before the next one is read.
func (f *feed) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		if p, ok := obj.(*pod); ok {
			p.Metadata.Annotations = p.kept()
		}
		return obj, nil
	}
}

// maxDoubts is how many pods may wait to be confirmed.
const maxDoubts = 100

// doubt is a pod that has not been confirmed since a hold was seen.
type doubt struct {
	uid   string
	since time.Duration // when the hold was seen
}

// doubted returns the pod of a doubt; nil if it was confirmed meanwhile or does not exist.
func (w *Witness) doubted(d doubt) *podproof.Pod {
	p, _ := w.pods.find(d.uid, "", "")
	if p == nil || p.Gone != podproof.Never || p.Confirmed > 0 && p.Confirmed >= d.since {
		return nil
	}
	return p
}

// doubt requests the pod of a holder if it would not be certain, once its end is reported, that the end came after the
// hold was seen. If too many pods wait, the next look tries again.
func (w *Witness) doubt(r *metadata.Record) {
	d := doubt{r.Process.PodUID, r.Seen.First}
	f := w.feed(r.Process.PodNamespace)
	if d.uid == "" || f == nil || f.covers(d.since) || w.doubted(d) == nil {
		return
	}
	select {
	case w.doubts <- d:
	default:
	}
}

// confirm requests pods until ctx ends. The API server's answer was true after the request was sent.
func (w *Witness) confirm(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-w.doubts:
			if p := w.doubted(d); p != nil {
				w.ask(ctx, p)
			}
		}
	}
}

// ask requests one pod. If there is no answer, the next look doubts it again.
func (w *Witness) ask(ctx context.Context, p *podproof.Pod) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	at := w.config.Clock()
	if answer, err := w.api.get(ctx, p.Namespace, p.Name); err == nil {
		w.pods.confirm(answer.brief(), at)
	}
}
