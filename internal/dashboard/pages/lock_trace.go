package pages

import "github.com/clustermutex/unlocker/internal/dashboard/stacktrace"

// traceView is a backtrace as a page shows it: the first frame of own code, what was called from it above, and what led
// to it below, of which the most is folded.
type traceView struct {
	*stacktrace.Trace
	Above *stacktrace.Stretch
	Below []stacktrace.Stretch
	Rest  []stacktrace.Stretch
	More  int // frames in the rest
}

// maxFramesShown is how many frames are shown at first; a folded stretch counts as one. A fold hides at least two.
const maxFramesShown, minFramesFolded = 8, 2

func newTraceView(t *stacktrace.Trace) *traceView {
	if t == nil {
		return nil
	}
	v := &traceView{Trace: t}
	stretches := t.Stretches
	shown := 0
	if t.First != nil {
		if stretches[0].Foreign {
			v.Above = &stretches[0]
			stretches = stretches[1:]
		}
		first := stretches[0]
		first.Frames = first.Frames[1:]
		stretches = append([]stacktrace.Stretch{first}, stretches[1:]...)
		shown = 1
	}
	for _, s := range stretches {
		n := len(s.Frames)
		switch room := maxFramesShown - shown; {
		case n == 0:
		case s.Fold && room > 0:
			v.Below = append(v.Below, s)
			shown++
		case n <= room:
			v.Below = append(v.Below, s)
			shown += n
		default:
			room = max(0, room)
			if room > 0 {
				v.Below = append(v.Below, stacktrace.Stretch{Foreign: s.Foreign, Frames: s.Frames[:room]})
				shown += room
			}
			v.Rest = append(v.Rest, stacktrace.Stretch{Foreign: s.Foreign, Fold: s.Fold, Frames: s.Frames[room:]})
			v.More += n - room
		}
	}
	if v.More < minFramesFolded {
		v.Below = append(v.Below, v.Rest...)
		v.Rest, v.More = nil, 0
	}
	return v
}
