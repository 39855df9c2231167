package lockrecord

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// The most that an unlocker may exclude.
const (
	MaxExclusions     = 64
	MaxExclusionBytes = metadata.MaxNameBytes
)

// CheckExclude checks the globs of locks that an unlocker never removes.
func CheckExclude(globs []string) error {
	if len(globs) > MaxExclusions {
		return fmt.Errorf("%d globs are too many: at most %d are published to readers of the locks", len(globs),
			MaxExclusions)
	}
	for _, glob := range globs {
		switch {
		case glob == "":
			return errors.New("a glob is empty: give a glob of lock names, or leave it out")
		case len(glob) > MaxExclusionBytes:
			return fmt.Errorf("a glob has %d bytes, more than %d", len(glob), MaxExclusionBytes)
		}
	}
	return nil
}

// UnmarshalPresence decodes the presence of an unlocker. A removal policy that cannot be read becomes nil and does not
// fail the rest: an unlocker of another version runs all the same.
func UnmarshalPresence(text []byte) (metadata.Presence, error) {
	read := struct {
		metadata.Presence
		Sweep json.RawMessage `json:"sweep"`
	}{}
	if err := json.Unmarshal(text, &read); err != nil {
		return metadata.Presence{}, err
	}
	read.RemovalPolicy = readRemovalPolicy(read.Sweep)
	return read.Presence, nil
}

// missing is no value of a policy.
const missing = metadata.Seconds(-1)

// readRemovalPolicy returns nil unless all members are present and valid.
func readRemovalPolicy(text []byte) *metadata.RemovalPolicy {
	if len(text) == 0 {
		return nil
	}
	p := metadata.RemovalPolicy{ClockSkew: missing, MinWarning: missing, DefaultAlertAfter: missing,
		DefaultAutoUnlockAfter: missing, AbandonedGrace: missing, LockDelay: missing}
	if json.Unmarshal(text, &p) != nil || p.Exclude == nil || CheckExclude(p.Exclude) != nil {
		return nil
	}
	for _, d := range []metadata.Seconds{p.ClockSkew, p.MinWarning, p.DefaultAlertAfter,
		p.DefaultAutoUnlockAfter, p.AbandonedGrace, p.LockDelay} {
		if d == missing {
			return nil
		}
	}
	if p.Abandoned != metadata.AbandonedReport && p.Abandoned != metadata.AbandonedUnlock {
		return nil
	}
	return &p
}
