package staleness

import "time"

// removalTakes is how long a removal that nothing holds back may take: until the next scan, and in etcd.
const removalTakes = 5 * time.Second

// OverdueAt returns the wall time by which unlockers with this policy have removed the lock, unless its record changes
// or something holds them back. Zero = they do not remove it for what it is now.
func (v Verdict) OverdueAt(p Policy) time.Time {
	switch {
	case v.State == Expired:
		return v.AutoUnlockAt.Add(p.ClockSkew + p.MinWarning + removalTakes)
	case v.State == Abandoned && !v.RemoveAt.IsZero():
		return v.RemoveAt.Add(removalTakes)
	}
	return time.Time{}
}
