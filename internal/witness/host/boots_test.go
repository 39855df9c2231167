package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// disk holds the files of a machine that survive a reboot.
type disk struct {
	testing.TB
	dir, state string
}

func newDisk(t testing.TB) disk {
	d := disk{t, t.TempDir(), t.TempDir()}
	d.write("machine-id", "m1\n")
	d.write("product", "p1\n")
	return d
}

func (d disk) write(name, text string) {
	d.Helper()
	proctest.Must(d, os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600))
}

func (d disk) boot(id, hostname string) (Machine, bool, error) {
	return rememberBoots(Machine{BootID: id, Hostname: hostname, Namespace: 4}, d.state, fingerprint{
		machine: []string{filepath.Join(d.dir, "missing"), filepath.Join(d.dir, "machine-id")},
		product: []string{filepath.Join(d.dir, "product")},
	})
}

// boots expects these earlier boots to be known in the boot with this id.
func (d disk) boots(id, hostname string, forgets bool, earlier ...string) {
	d.Helper()
	m, forgotten, err := d.boot(id, hostname)
	if err != nil || forgotten != forgets || !slices.Equal(m.Earlier, earlier) || m.BootID != id || m.Namespace != 4 {
		d.Errorf("boot %s of %s: %+v, forgotten %v, %v; want %v", id, hostname, m, forgotten, err, earlier)
	}
}

func TestBootsAreRemembered(t *testing.T) {
	d := newDisk(t)
	d.boots("a", "host-1", false)
	d.boots("a", "host-1", false) // the witness was restarted
	d.boots("b", "host-1", false, "a")
	d.boots("c", "host-1", false, "a", "b")
	var all []string
	for i := range 2 * maxBoots {
		all = append(all, strings.Repeat("x", i+1))
		if _, _, err := d.boot(all[i], "host-1"); err != nil {
			t.Fatal(err)
		}
	}
	d.boots("last", "host-1", false, all[maxBoots+1:]...)
}

func TestBootsOfAnotherMachineAreDiscarded(t *testing.T) {
	for about, copied := range map[string]func(disk){
		"another machine id": func(d disk) { d.write("machine-id", "m2\n") },
		"another board":      func(d disk) { d.write("product", "p2\n") },
	} {
		d := newDisk(t)
		d.boots("a", "host-1", false)
		copied(d)
		t.Log(about)
		d.boots("b", "host-1", true)
		d.boots("c", "host-1", false, "b")
	}
	d := newDisk(t)
	d.boots("a", "host-1", false)
	d.boots("b", "host-2", true)
	os.Remove(filepath.Join(d.dir, "product")) // it may not be read any more
	d.boots("c", "host-2", false, "b")
}

func TestFailureToRememberBootsIsAnError(t *testing.T) {
	d := newDisk(t)
	proctest.Must(t, os.WriteFile(filepath.Join(d.state, "boots.json"), []byte("{"), 0o600))
	if _, _, err := d.boot("a", "host-1"); err == nil || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("a broken file: %v", err)
	}
	d.state = filepath.Join(d.state, "missing")
	if _, _, err := d.boot("a", "host-1"); err == nil {
		t.Error("a directory that is not there is taken")
	}
	d = newDisk(t)
	d.write("machine-id", "\n")
	if _, _, err := d.boot("a", "host-1"); err == nil || !strings.Contains(err.Error(), "machine-id") {
		t.Errorf("a machine without an id: %v", err)
	}
}
