package unlocker

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/common/model"

	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/pkg/sweeper"
)

// check returns an error, in one sentence, if the options cannot work. It opens nothing.
func (o options) check() error {
	_, mode := o.mode()
	exclude := lockrecord.CheckExclude(o.sweeper.Exclude)
	if exclude != nil {
		exclude = fmt.Errorf("--sweep.exclude: %w", exclude)
	}
	_, dashboard := daemon.ParseURL("--dashboard.url", o.dashboard)
	return daemon.Usage(cmp.Or(mode, o.sweeper.Policy.Check(), exclude, dashboard,
		checkLabelAttributes(o.metrics.Attributes), o.kubernetes.check(), o.etcd.Check(), o.web.Check()))
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
		if o.sweeper.Policy.UnlockAbandoned {
			return "", errors.New("--sweep.abandoned=unlock removes locks, but --policy=alert-only removes nothing: " +
				"choose one of them")
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

// checkLabelAttributes returns an error for attributes that cannot become labels of the series of locks.
func checkLabelAttributes(names []string) error {
	const flag = "--metrics.label-attribute"
	for i, name := range names {
		switch {
		case !model.LegacyValidation.IsValidLabelName(name) || strings.HasPrefix(name, model.ReservedLabelPrefix):
			return fmt.Errorf("%s cannot be %q: it must be the name of a label, such as team", flag, name)
		case slices.Contains([]string{"alertname", "severity", "lock", "locks", "holders", "owner", "hostname", "cause",
			"purpose", "state", "cluster", "namespace", "job", "instance"}, name):
			return fmt.Errorf("%s cannot be %q: series or alerts have that label already", flag, name)
		case slices.Contains(names[:i], name):
			return fmt.Errorf("%s has %q twice", flag, name)
		}
	}
	return nil
}
