package phrase

import "github.com/clustermutex/unlocker/pkg/staleness"

// HeldBack says why an unlocker removes nothing now. A rule that is not known here stands as it is.
func HeldBack(rule string) string {
	switch staleness.Rule(rule) {
	case staleness.Gap:
		return "the unlocker was offline and is giving holders time to extend"
	case staleness.Stale:
		return "the unlocker's view of the locks is out of date"
	case staleness.Etcd:
		return "etcd takes no writes, so holders cannot extend either"
	case staleness.Clock:
		return "the unlocker's clock cannot be trusted"
	case staleness.Revision:
		return "etcd went back to an older revision"
	case staleness.Brake:
		return "too many locks are due at once"
	}
	return rule
}
