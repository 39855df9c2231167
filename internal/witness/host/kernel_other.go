//go:build !linux

package host

import (
	"errors"
	"io/fs"
)

// handle refers to one process. There is none: only Linux reports on processes as a witness requires.
type handle struct{}

func findCgroups(map[int64]bool) (map[int64]int, []string, error) {
	return nil, nil, errors.ErrUnsupported
}

func openCgroup(int64, int64) (openedCgroup, error) { return nil, errors.ErrUnsupported }

func openProcess(int64) (*handle, error) { return nil, errors.ErrUnsupported }
func isGone(err error) bool              { return errors.Is(err, fs.ErrNotExist) }
func exists(int64) bool                  { return true }
func (*handle) ended() bool              { return false }
func (*handle) wait() error              { return errors.ErrUnsupported }
func (*handle) close()                   {}
func (*handle) exit() (int64, bool)      { return 0, false }
func outcome(int64) (string, int)        { return "", 0 }
