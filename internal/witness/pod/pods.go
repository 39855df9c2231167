package pod

import (
	"context"
	"sync"
	"time"

	"github.com/clustermutex/unlocker/internal/witness/pod/podproof"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	// watchTimeout is how long a watch may be silent before it counts as broken: a working one sends a bookmark about
	// every minute.
	watchTimeout = 90 * time.Second
	// confirmAfter is how long a watch may be silent before the pods of new holds are confirmed by a read: while
	// nothing changes, an API server may send no bookmarks.
	confirmAfter = time.Minute
	// goneRetention is how long a deleted pod is remembered, for locks that are read after its end.
	goneRetention = 15 * time.Minute
	// maxGone is how many deleted pods are remembered.
	maxGone = 20_000
)

// pods holds the known pods, from one watch for each namespace. It is safe for concurrent use.
type pods struct {
	clock   func() time.Duration
	changed chan struct{} // capacity 1: a pod has changed

	mu     sync.Mutex
	byUID  map[string]*podproof.Pod
	byName map[name]string // UID of the latest pod with the name
	gone   []string        // UIDs of deleted pods, the earliest first
}

type name struct{ namespace, name string }

func newPods(clock func() time.Duration) *pods {
	return &pods{clock: clock, changed: make(chan struct{}, 1), byUID: map[string]*podproof.Pod{},
		byName: map[name]string{}}
}

// find returns the pod with the UID, and the latest with the name; nil if there is none.
func (p *pods) find(uid, namespace, podName string) (pod, namesake *podproof.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if uid != "" {
		pod = p.byUID[uid]
	}
	return pod, p.byUID[p.byName[name{namespace, podName}]]
}

// confirm stores that an answer of the API server, to a request sent at that moment or later, confirmed a pod.
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

// store stores the current state of a pod. The caller holds mu.
func (p *pods) store(now podproof.Pod, confirmed, at time.Duration) {
	known := p.byUID[now.UID]
	if known != nil && known.Gone != podproof.Never {
		return // UIDs are never reused
	}
	p.byUID[now.UID] = podproof.Observe(known, now, confirmed, at)
	p.byName[name{now.Namespace, now.Name}] = now.UID
}

// markGone stores that a pod no longer exists; unseen, if that happened while it was not watched. The caller holds mu.
func (p *pods) markGone(uid string, at time.Duration, unseen bool) {
	known := p.byUID[uid]
	if known == nil || known.Gone != podproof.Never {
		return
	}
	p.byUID[uid] = podproof.MarkGone(known, at, unseen)
	p.gone = append(p.gone, uid)
	p.forget(at)
}

// forget drops pods that were deleted long ago. The caller holds mu.
func (p *pods) forget(at time.Duration) {
	for len(p.gone) > 0 && (len(p.gone) > maxGone || at-p.byUID[p.gone[0]].Gone > goneRetention) {
		old := p.byUID[p.gone[0]]
		delete(p.byUID, old.UID)
		if n := (name{old.Namespace, old.Name}); p.byName[n] == old.UID {
			delete(p.byName, n)
		}
		p.gone = p.gone[1:]
	}
}

// notify wakes the reader that waits for a change.
func (p *pods) notify() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// feed is the [cache.ReflectorStore] of the watch of one namespace, or of all. It stores pods, and since when the watch
// has missed no event.
type feed struct {
	pods *pods

	mu          sync.Mutex
	uids        map[string]bool // of the existing pods of this feed
	since       time.Duration   // since when no event was missed; podproof.Never before the first list
	lastContact time.Duration   // when the API server last sent something

	broken bool // the last request has failed
	// behind means that the watch was interrupted, and neither a list nor a bookmark has come since: events may be
	// missing. Up to completeUntil, none is.
	behind        bool
	completeUntil time.Duration
}

func newFeed(p *pods) *feed {
	return &feed{pods: p, uids: map[string]bool{}, since: podproof.Never}
}

// recordContact notes that the API server has sent something, and returns the moment up to which no event is missing.
// The caller holds mu.
func (f *feed) recordContact(at time.Duration) (confirmed time.Duration) {
	if at-f.lastContact > watchTimeout {
		f.fallBehind()
	}
	f.lastContact = at
	f.broken = false
	if f.behind {
		return f.completeUntil
	}
	return at
}

// catchUp notes that no event is missing. The caller holds mu and has called recordContact.
func (f *feed) catchUp(at time.Duration) {
	if f.behind || f.since == podproof.Never {
		f.since = at
	}
	f.behind = false
}

// fallBehind notes that events may be missing from now on. The caller holds mu.
func (f *feed) fallBehind() {
	if !f.behind {
		f.behind = true
		f.completeUntil = f.lastContact
	}
}

func (f *feed) recordFailure() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fallBehind()
	f.broken = true
}

// isSynced reports whether the pods are known and the watch is working.
func (f *feed) isSynced() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.since != podproof.Never && !f.broken && f.pods.clock()-f.lastContact <= watchTimeout
}

// covers reports whether the next event will be later than moment: the API server has sent something since, or its
// silence is too short to matter.
func (f *feed) covers(moment time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.behind {
		return f.completeUntil >= moment
	}
	return f.lastContact >= moment || f.pods.clock()-f.lastContact < confirmAfter
}

// completeSince returns since when no event has been missed; podproof.Never if some may be missing.
func (f *feed) completeSince() time.Duration {
	if !f.isSynced() {
		return podproof.Never
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.behind {
		return podproof.Never
	}
	return f.since
}

func (f *feed) Add(obj any) error { return f.Update(obj) }

func (f *feed) Update(obj any) error { return f.apply(obj, false) }

// Delete implements [cache.ReflectorStore]. The object is the last state of the pod.
func (f *feed) Delete(obj any) error { return f.apply(obj, true) }

func (f *feed) apply(obj any, gone bool) error {
	now := obj.(*pod).summary() // the reflector refuses other objects
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods.mu.Lock()
	defer f.pods.mu.Unlock()
	at := f.pods.clock()
	f.pods.store(now, f.recordContact(at), at)
	f.uids[now.UID] = true
	if gone {
		f.pods.markGone(now.UID, at, false)
		delete(f.uids, now.UID)
	}
	f.pods.notify()
	return nil
}

// Replace implements [cache.ReflectorStore]: the list has all existing pods. Events before it may have been missed.
func (f *feed) Replace(list []any, _ string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods.mu.Lock()
	defer f.pods.mu.Unlock()
	f.fallBehind()
	at := f.pods.clock()
	confirmed := f.recordContact(at)
	uids := make(map[string]bool, len(list))
	for _, obj := range list {
		now := obj.(*pod).summary()
		f.pods.store(now, confirmed, at)
		uids[now.UID] = true
	}
	for uid := range f.uids {
		if !uids[uid] {
			f.pods.markGone(uid, at, true)
		}
	}
	f.uids = uids
	f.catchUp(at)
	f.pods.notify()
	return nil
}

func (f *feed) Resync() error { return nil }

// Bookmark implements [cache.ReflectorBookmarkStore]: all changes up to now have arrived.
func (f *feed) Bookmark(string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.pods.clock()
	f.recordContact(at)
	f.catchUp(at)
	return nil
}

// maxUnconfirmed is how many pods may wait for a confirmation.
const maxUnconfirmed = 100

// unconfirmedPod is a pod whose state has not been confirmed by a read since a hold was seen.
type unconfirmedPod struct {
	uid   string
	since time.Duration // when the hold was seen
}

// podToConfirm returns the pod to confirm; nil if it was confirmed meanwhile or does not exist.
func (w *Witness) podToConfirm(u unconfirmedPod) *podproof.Pod {
	p, _ := w.pods.find(u.uid, "", "")
	if p == nil || p.Gone != podproof.Never || p.Confirmed > 0 && p.Confirmed >= u.since {
		return nil
	}
	return p
}

// requestConfirmation has the pod of a holder confirmed by a read, if an end that the watch reports later might have
// happened before the hold was seen. If too many pods wait, the next round of judgeAll tries again.
func (w *Witness) requestConfirmation(r *metadata.Record) {
	u := unconfirmedPod{r.Process.PodUID, r.Seen.First}
	f := w.feed(r.Process.PodNamespace)
	if u.uid == "" || f == nil || f.covers(u.since) || w.podToConfirm(u) == nil {
		return
	}
	select {
	case w.unconfirmed <- u:
	default:
	}
}

// confirmPods confirms the pods that wait for it, until ctx ends.
func (w *Witness) confirmPods(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case u := <-w.unconfirmed:
			if p := w.podToConfirm(u); p != nil {
				w.confirmPod(ctx, p)
			}
		}
	}
}

// confirmPod reads a pod past all caches, so the answer was true after the request was sent. If that fails, the next
// round of judgeAll requests it again.
func (w *Witness) confirmPod(ctx context.Context, p *podproof.Pod) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	at := w.config.Clock()
	if answer, err := w.api.get(ctx, p.Namespace, p.Name); err == nil {
		w.pods.confirm(answer.summary(), at)
	}
}
