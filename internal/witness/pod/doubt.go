package pod

import (
	"context"
	"time"

	"github.com/clustermutex/unlocker/internal/witness/pod/podproof"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// maxDoubts is how many pods may wait to be asked for.
const maxDoubts = 100

// doubt is about a pod: it has not been confirmed since a hold was seen.
type doubt struct {
	uid   string
	since time.Duration // when the hold was seen
}

// doubted returns the pod of a doubt, nil if it was confirmed meanwhile or is not there.
func (w *Witness) doubted(d doubt) *podproof.Pod {
	p, _ := w.pods.find(d.uid, "", "")
	if p == nil || p.Gone != podproof.Never || p.Confirmed > 0 && p.Confirmed >= d.since {
		return nil
	}
	return p
}

// doubt asks for the pod of a holder if its end, once it is reported, would not be known to come after the hold was
// seen. If too many pods wait for that, the next look tries again.
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

// confirm asks for pods until ctx ends. What the API server answers was true after it was asked.
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

// ask asks for one pod. If there is no answer, the next look doubts again.
func (w *Witness) ask(ctx context.Context, p *podproof.Pod) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	at := w.config.Clock()
	if answer, err := w.api.get(ctx, p.Namespace, p.Name); err == nil {
		w.pods.confirm(answer.brief(), at)
	}
}
