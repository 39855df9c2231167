package unlocker

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

// check returns an error, in one sentence, if the options cannot work. It opens nothing.
func (o options) check() error {
	_, err := o.mode()
	return daemon.Usage(cmp.Or(err, o.sweeper.Policy.Check(), o.checkSweep(), o.checkMetrics(), o.checkHistory(),
		o.kubernetes.check(), o.etcd.Check(), o.web.Check()))
}

// mode returns the chosen policy. There is no default: an unlocker must not remove locks by accident, and an operator
// must not wait for removals that never come.
func (o options) mode() (sweeper.Mode, error) {
	switch mode := sweeper.Mode(o.policy); mode {
	case "":
		return "", errors.New("--policy is missing: choose alert-only, which removes nothing, or auto-unlock")
	case sweeper.AlertOnly:
		if o.dryRun {
			return "", errors.New("--sweep.dry-run logs what auto-unlock would remove, but --policy=alert-only " +
				"removes nothing: choose one of them")
		}
		return mode, nil
	case sweeper.AutoUnlock:
		if o.dryRun {
			return sweeper.DryRun, nil
		}
		return mode, nil
	}
	return "", fmt.Errorf("--policy cannot be %q: it must be alert-only or auto-unlock", o.policy)
}

func (o options) checkSweep() error {
	if o.sweeper.Policy.UnlockAbandoned && o.policy == string(sweeper.AlertOnly) {
		return errors.New("--sweep.abandoned=unlock removes locks, but --policy=alert-only removes nothing: choose " +
			"one of them")
	}
	if err := lockrecord.CheckExclude(o.sweeper.Exclude); err != nil {
		return fmt.Errorf("--sweep.exclude: %w", err)
	}
	return nil
}

func (o options) checkMetrics() error {
	switch limit := o.metrics.SeriesLimit; {
	case limit < 0:
		return fmt.Errorf("--metrics.lock-series-limit is %d: it must not be negative", limit)
	case o.dashboard != "":
		if _, err := daemon.ParseURL("--dashboard.url", o.dashboard); err != nil {
			return err
		}
	}
	return checkLabelAttributes(o.metrics.Attributes)
}

func (o options) checkHistory() error {
	switch {
	case o.historyRetention == 0:
		return errors.New("--history.retention is 0s: it must be above 0")
	case o.historyMax < 0:
		return fmt.Errorf("--history.max is %d: it must not be negative", o.historyMax)
	}
	return nil
}
