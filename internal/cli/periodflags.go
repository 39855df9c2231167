package cli

import (
	"time"

	"github.com/clustermutex/unlocker/pkg/jobs"
	"github.com/spf13/pflag"
)

// periodFlags are the flags of run for commands that run once per period.
type periodFlags struct {
	every       time.Duration // 0: always
	offset      time.Duration
	backOnError bool
	skipStatus  int
	given       *pflag.FlagSet
}

func (p *periodFlags) add(f *pflag.FlagSet) {
	p.given = f
	f.DurationVar(&p.every, "once-per", 0, "run the command once per period of this length, across all machines")
	f.DurationVar(&p.offset, "period-offset", 0,
		"with --once-per: how long after the full hour, or midnight UTC, periods begin")
	f.BoolVar(&p.backOnError, "back-on-error", false,
		"with --once-per: a failed command does not use up the period")
	f.IntVar(&p.skipStatus, "skip-status", ExitOK,
		"with --once-per: the exit status when the period is already used up")
}

// check refuses flags that make no sense.
func (p *periodFlags) check(t *takeFlags) error {
	once := p.given.Changed("once-per")
	for _, name := range []string{"period-offset", "back-on-error", "skip-status"} {
		if !once && p.given.Changed(name) {
			return usagef("--%s goes with --once-per", name)
		}
	}
	switch {
	case !once:
		return nil
	case p.every < jobs.MinPeriod || p.every > jobs.MaxPeriod:
		return usagef("--once-per is %v, it must be between %v and %v", p.every, jobs.MinPeriod, jobs.MaxPeriod)
	case p.offset < 0 || p.offset >= p.every:
		return usagef("--period-offset is %v, it must be shorter than --once-per, which is %v, and not negative",
			p.offset, p.every)
	case p.skipStatus < 0 || p.skipStatus > 255:
		return usagef("--skip-status is %d, it must be between 0 and 255", p.skipStatus)
	case t.kind() != "":
		return usagef("--once-per runs one command at a time, so it excludes --semaphore, --shared and --exclusive")
	}
	return nil
}

// next is when the period after the one that began at start begins.
func (p *periodFlags) next(start time.Time) time.Time {
	past := (start.UnixNano() - int64(p.offset)) % int64(p.every)
	return start.Add(p.every - time.Duration(past))
}
