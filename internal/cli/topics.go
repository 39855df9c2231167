package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/locks"
)

const exitCodes = `mutexctl exits with one of these statuses:

  0    done
  1    failure: etcd is unreachable or refused the request, or something broke
  2    usage: a wrong flag or argument; etcd was not contacted
  3    held by another: the lock was not free in time, or the hold is not the one you named
  4    no such lock: nobody holds it
  5    lost while running: the lock was lost while the command of "run" ran

"mutexctl run" exits with the status of its command, whatever it is. Its own statuses are:

  0    with --once-per or --once-at: the period or time is already used up and the command did not start
       (--skip-status)
  1    etcd, as above, or with --once-per a clock that is wrong; the command did not start
  3    the lock was not free within --wait; the command did not start (--skip-status)
  5    the lock was lost; the command was ended (even if it then succeeded)
  126  the command exists but cannot be started; the lock was not taken
  127  there is no such command; the lock was not taken
  128+n  signal n ended the command, or mutexctl while it waited (130 is Ctrl-C, 143 is TERM); this
       includes a signal of --on-ask

"mutexctl check" is a Nagios and Icinga plugin with their statuses: 0 OK, 1 WARNING, 2 CRITICAL,
3 UNKNOWN, also for a wrong argument.

If your command may exit with one of these statuses itself, look at stderr: each line that run writes
begins with "mutexctl run:".`

func newExitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "The exit statuses of all commands",
		Long:  exitCodes,
		Example: `  # take the lock if it is free; the status shows why the command did not run
  mutexctl run nightly/report --wait 0 -- ./report.sh
  case $? in
    3) echo "another process holds it" ;;
    5) echo "the lock was lost" ;;
  esac`,
	}
}

func newJSONTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "json",
		Short: "The members of the JSON of all commands",
		Long: `With -o json, commands print JSON, one object per line:

  list                a lock
  list --delays       a lock delay
  show                one lock in full
  history             an ending
  watch               a change
  periods             a period
  tasks               a task
  version             {version, revision, go_version}

` + lockjson.Conventions + `
Only the times of a change, a period and a task come without seconds.

A change:

` + changeMembers + `

A period:

` + periodMembers + `

A task:

` + taskMembers + titled(lockjson.Lock{}) + `

For a semaphore or read-write lock as a whole, state is the worst of its holders', permits are those
taken, and what only a single hold has is null.` + titled(lockjson.Document{}, lockjson.Process{},
			lockjson.Headline{}) + `

A diagnosis, from the record, what its holder's process waits for, and past holds that others than
their holders ended; the dashboard compares with those that were released, too:

` + lockjson.ShapeOf(lockjson.Diagnosis{}).Help() + titled(lockjson.Statement{}, lockjson.Asked{},
			lockjson.Extended{}, lockjson.Acknowledged{}, lockjson.Leased{}, lockjson.Delay{}, lockjson.Waiter{},
			lockjson.Field{}, lockjson.Ending{}),
		Example: `  mutexctl list -o json | jq -r 'select(.locked_at_in_seconds < -3600) | .name'`,
	}
}

func newQueryTopic() *cobra.Command {
	forms := ""
	for _, f := range locks.TermsHelp() {
		forms += fmt.Sprintf("\n  %-30s  %s", f.Term, f.Finds)
	}
	return &cobra.Command{
		Use:   "query",
		Short: "The query language of list, watch, history and check, and of the dashboard's search",
		Long: `The words after list, watch, history and check are a query, the same as in the dashboard's search:
` + forms + `

` + locks.QueryRules + `

A plain word is a part of several texts. To name one lock, as in scripts and checks, write name:=NAME.
Quote * ? < > and blanks for the shell: mutexctl list 'host:node-7 held:>10m'. If a query begins with -,
put -- before it. A term that does not apply is an error: watch, list and check look at locks, without
ended:; history looks at ended holds as they were at their end, without wait: and waiters:; and "list
--delays" has only name: owner: host: purpose: and hold:.`,
		Example: `  mutexctl check 'name:=billing/nightly'
  mutexctl watch -- -owner:test`,
	}
}

func titled(objects ...any) (all string) {
	for _, object := range objects {
		s := lockjson.ShapeOf(object)
		all += "\n\n" + s.Title + ":\n\n" + s.Help()
	}
	return all
}
