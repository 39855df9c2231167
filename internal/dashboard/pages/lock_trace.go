package pages

import (
	"github.com/clustermutex/unlocker/internal/dashboard/stacktrace"
)

// traceView is a backtrace as a page shows it: the first frame of own code, what was called from it above, and what led
// to it below, of which the most is folded.
type traceView struct {
	*stacktrace.Trace
	Above *stacktrace.Section
	Below []stacktrace.Section
	Rest  []stacktrace.Section
	More  int // frames in the rest
}

// maxFramesShown is how many frames are shown at first; a folded stretch counts as one. A fold hides at least two.
const maxFramesShown, minFramesFolded = 8, 2

func newTraceView(t *stacktrace.Trace) *traceView {
	if t == nil {
		return nil
	}
	v := &traceView{Trace: t}
	sections := t.Sections
	shown := 0
	if t.First != nil {
		if sections[0].Foreign {
			v.Above = &sections[0]
			sections = sections[1:]
		}
		first := sections[0]
		first.Frames = first.Frames[1:]
		sections = append([]stacktrace.Section{first}, sections[1:]...)
		shown = 1
	}
	for _, s := range sections {
		n := min(len(s.Frames), max(0, maxFramesShown-shown))
		cost := n
		if s.Fold && n > 0 {
			n = len(s.Frames)
			cost = 1
		}
		shown += cost
		if n > 0 {
			v.Below = append(v.Below, stacktrace.Section{Foreign: s.Foreign, Fold: s.Fold, Frames: s.Frames[:n]})
		}
		if rest := s.Frames[n:]; len(rest) > 0 {
			v.Rest = append(v.Rest, stacktrace.Section{Foreign: s.Foreign, Fold: s.Fold, Frames: rest})
			v.More += len(rest)
		}
	}
	if v.More < minFramesFolded {
		v.Below = append(v.Below, v.Rest...)
		v.Rest, v.More = nil, 0
	}
	return v
}
