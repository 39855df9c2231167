package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// outlived reports whether the process has ended, and its command may live.
func (p *process) outlived() bool { return p.over != nil && len(p.locks) > 0 }

// lookForCommands looks for processes that are left in the cgroups of ended holders. It looks only after their end,
// because a live holder could start its command after the look.
func (w *Witness) lookForCommands(ctx context.Context) {
	began := time.Now()
	due, ids := w.left(began)
	if len(due) == 0 {
		return
	}
	living, err := w.cgroups(ids)
	took := time.Since(began)
	var news []metadata.Statement
	w.mu.Lock()
	for _, p := range due {
		n := living[p.cgroup]
		switch p.unseen = err != nil; {
		case w.running[p.holder] != p:
		case err != nil:
			w.cannotSeeCgroups(err)
			p.next = time.Now().Add(searchPause)
		case n == 0:
			w.conclude(p, *p.over)
		default:
			news = append(news, w.lives(p, n)...)
			p.next = time.Now().Add(p.pause)
			if p.pause = 2 * p.pause; p.pause > w.pauses.poll { // it is not being killed: no hurry
				p.pause = max(w.pauses.poll, searchShare*took)
			}
		}
	}
	w.mu.Unlock()
	for _, s := range news {
		w.suspect(ctx, s)
	}
}

// left returns the processes whose commands are due for a look, and the ids of their cgroups.
func (w *Witness) left(now time.Time) (due []*process, ids map[int64]bool) {
	ids = map[int64]bool{}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.running {
		if p.outlived() && !p.next.After(now) {
			due = append(due, p)
			ids[p.cgroup] = true
		}
	}
	return due, ids
}

// lives returns the statements about a command that outlives its process: once, and not while it is being killed. The
// caller holds mu.
func (w *Witness) lives(p *process, n int) (news []metadata.Statement) {
	if p.reported || p.pause < w.pauses.poll {
		return nil
	}
	p.reported = true
	for _, l := range p.locks {
		how := fmt.Sprintf("process %d on %s ended and left %s of its command alive", p.pid, w.cfg.Machine.Hostname,
			text.Count(n, "process"))
		s := w.statement(l.hold, metadata.CauseCommandLives, how)
		s.EndedAt = metadata.Time{Time: p.over.at}
		s.ExitCode = p.over.code
		s.Signal = p.over.signal
		news = append(news, s)
	}
	return news
}

// suspect writes a suspicion. Nothing depends on whether it arrives.
func (w *Witness) suspect(ctx context.Context, s metadata.Statement) {
	log := w.cfg.Log.Info()
	if err := w.cfg.Suspect(ctx, s); err != nil && !errors.Is(err, metadata.ErrChanged) {
		log = w.cfg.Log.Warn().Err(err)
	}
	log.Str("lock", s.Lock).Str("uuid", s.UUID).Int64("token", s.Token).Msg(s.How)
}

// cannotSeeCgroups logs once that commands cannot be seen. The caller holds mu.
func (w *Witness) cannotSeeCgroups(err error) {
	if w.blind {
		return
	}
	w.blind = true
	w.cfg.Log.Warn().Err(err).Msg("a process of this machine that held a lock has ended, and whether its command has " +
		"cannot be seen from here: run the witness in the cgroup namespace of the machine; this is said once, a " +
		"metric counts them")
}
