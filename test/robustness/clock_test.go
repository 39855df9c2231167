package robustness

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// clockVariable names the file that tells a program how far its wall clock is off.
const clockVariable = "ROBUSTNESS_CLOCK"

// shifts are the places where the unlocker reads the wall clock to judge a lock or to compare clocks. In one of the two
// unlockers of a run they read a clock that can be set, as somebody sets that of a machine; all else is the program
// that is shipped.
var shifts = []struct{ dir, file, old, new string }{
	{"pkg/sweeper", "config.go", "c.Now = time.Now\n", "c.Now = func() time.Time { return shifted(time.Now()) }\n"},
	{"internal/etcdconn", "etcdconn.go", "asked.Add(took / 2)", "shifted(asked.Add(took / 2))"},
}

// shifted is the source of the clock that can be set.
const shifted = `package %s

import (
	"os"
	"time"
)

func shifted(t time.Time) time.Time {
	text, _ := os.ReadFile(os.Getenv(%q))
	by, _ := time.ParseDuration(string(text))
	return t.Round(0).Add(by)
}
`

// buildShifted builds the unlocker with the clock that can be set.
func buildShifted(p *proctest.Programs) error {
	replace := map[string]string{}
	write := func(dir, file, text string) error {
		to := filepath.Join(p.Dir, filepath.Base(dir)+"-"+file)
		replace[filepath.Join(p.Root, dir, file)] = to
		return os.WriteFile(to, []byte(text), 0o600)
	}
	for _, s := range shifts {
		source, err := os.ReadFile(filepath.Join(p.Root, s.dir, s.file))
		if err != nil {
			return err
		}
		if strings.Count(string(source), s.old) != 1 {
			return fmt.Errorf("%s/%s reads the clock in another way than in one %q", s.dir, s.file, s.old)
		}
		if err := write(s.dir, s.file, strings.Replace(string(source), s.old, s.new, 1)); err != nil {
			return err
		}
		if err := write(s.dir, "shifted.go", fmt.Sprintf(shifted, filepath.Base(s.dir), clockVariable)); err != nil {
			return err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	file := filepath.Join(p.Dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return err
	}
	return p.Go("build", "-overlay", file, "-o", filepath.Join(p.Dir, "unlocker-shifted"), "./cmd/unlocker")
}

// clockFile is where the clock of one unlocker is set.
func (s *stage) clockFile() string { return filepath.Join(s.dir, "clock") }

// setClock sets the clock of one unlocker.
func (s *stage) setClock(by time.Duration) {
	next := s.clockFile() + ".next"
	if err := os.WriteFile(next, []byte(by.String()), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(next, s.clockFile()); err != nil {
		s.t.Fatal(err)
	}
}

// jumpClock sets the clock of one unlocker forth or back, by seconds or by an hour. Whether it runs just now or begins
// with that clock does not matter.
func (s *stage) jumpClock() (func(), bool) {
	by := []time.Duration{10 * time.Second, time.Minute, time.Hour}[s.rand.IntN(3)]
	by += time.Duration(s.rand.Int64N(int64(by)))
	if s.rand.IntN(2) == 0 {
		by = -by
	}
	s.setClock(by)
	return func() { s.setClock(0) }, true
}
