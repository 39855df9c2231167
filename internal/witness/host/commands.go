package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// commandMayLive reports whether the process has ended while its command may still run.
func (p *process) commandMayLive() bool { return p.exit != nil && len(p.locks) > 0 }

// openedCgroup is the cgroup of a command. Other cgroups of the machine cannot hide it.
type openedCgroup interface {
	CountProcesses() (int, error)
	Close()
}

// hiddenCgroup is a cgroup that exists, but in a directory that the witness may not read.
type hiddenCgroup struct{ error }

func (h hiddenCgroup) CountProcesses() (int, error) { return 0, h.error }
func (h hiddenCgroup) Close()                       {}

// openCommand opens the cgroup of the command of a holder with these processes; nil if it is not found.
func (w *Witness) openCommand(h holder, watchers []watcher) (found openedCgroup) {
	if h.cgroup == 0 {
		return nil
	}
	for _, one := range watchers {
		opened, err := w.open(one.pid, h.cgroup)
		if err == nil {
			return opened
		}
		if errors.Is(err, fs.ErrPermission) {
			found = hiddenCgroup{err}
		}
	}
	return found
}

func (p *process) close() {
	closeAll(p.watchers)
	if p.opened != nil {
		p.opened.Close()
	}
}

// searchCommands searches the cgroups of ended holders for processes that are left. It does so only after the holder
// has ended, because a live holder could start its command after the search.
func (w *Witness) searchCommands(ctx context.Context) {
	began := time.Now()
	due, ids := w.dueCommands(began)
	var found map[int64]int
	var private []string
	var failed error
	if len(ids) > 0 {
		found, private, failed = w.cgroups(ids)
	}
	if len(private) > 0 {
		w.warnPrivate.Do(func() {
			w.cfg.Log.Warn().Str("directory", private[0]).Int("directories", len(private)).
				Msg("cgroups in private directories are taken for those of other users; logged once")
		})
	}
	var suspicions []*metadata.Statement
	for _, p := range due {
		n, err := p.countCommand(found, failed)
		suspicions = append(suspicions, w.recordCommand(p, n, err, time.Since(began))...)
	}
	for _, s := range suspicions {
		w.writeSuspicion(ctx, s)
	}
}

// recordCommand stores how many processes the command of an ended process has, as far as a search that took this long
// could see it, and returns the suspicions to write.
func (w *Witness) recordCommand(p *process, n int, err error, took time.Duration) []*metadata.Statement {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.unseen = err != nil
	switch {
	case w.running[p.holder] != p:
	case err != nil:
		w.warnCgroups.Do(func() {
			w.cfg.Log.Warn().Err(err).Msg("cannot see whether the command of an ended lock holder still runs; " +
				"logged once, a metric counts such processes")
		})
		p.next = time.Now().Add(searchPause)
	case n == 0:
		w.stateEnd(p, *p.exit)
	default:
		p.next = time.Now().Add(p.commandPause)
		suspicions := w.commandSuspicions(p, n)
		if p.commandPause = 2 * p.commandPause; p.commandPause > w.pauses.poll { // it is not being killed: no hurry
			p.commandPause = max(w.pauses.poll, searchShare*took)
		}
		return suspicions
	}
	return nil
}

// dueCommands returns the ended processes whose commands have to be searched for now, and the ids of those cgroups that
// are not open.
func (w *Witness) dueCommands(now time.Time) (due []*process, ids map[int64]bool) {
	ids = map[int64]bool{}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.running {
		if !p.commandMayLive() || p.next.After(now) {
			continue
		}
		due = append(due, p)
		if p.opened == nil {
			ids[p.cgroup] = true
		}
	}
	return due, ids
}

// countCommand returns how many processes the command of an ended process has, by its open cgroup, or else by the
// result of a search.
func (p *process) countCommand(found map[int64]int, failed error) (int, error) {
	if p.opened != nil {
		return p.opened.CountProcesses()
	}
	return found[p.cgroup], failed
}

// commandSuspicions returns the suspicions that a command outlives its process, one for each lock. It returns them
// once, and none while the command may be being killed. The caller holds mu.
func (w *Witness) commandSuspicions(p *process, n int) (suspicions []*metadata.Statement) {
	if p.reported || p.commandPause < w.pauses.poll {
		return nil
	}
	p.reported = true
	for _, l := range p.locks {
		how := fmt.Sprintf("process %d on %s ended and left %s of its command alive", p.pid, w.cfg.Machine.Hostname,
			text.Count(n, "process"))
		s := w.newStatement(l.hold, metadata.CauseCommandLives, how)
		p.exit.addTo(s)
		suspicions = append(suspicions, s)
	}
	return suspicions
}

// writeSuspicion writes a suspicion. It is not retried: suspicions only inform people.
func (w *Witness) writeSuspicion(ctx context.Context, s *metadata.Statement) {
	log := w.cfg.Log.Info()
	if err := w.cfg.RecordSuspicion(ctx, *s); err != nil && !errors.Is(err, metadata.ErrChanged) {
		log = w.cfg.Log.Warn().Err(err)
	}
	log.Str("lock", s.Name).Str("uuid", s.UUID).Int64("token", s.Token).Msg(s.Reason)
}
