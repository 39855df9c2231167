package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

var errNoHandle = errors.New("this kernel has no handles")

// fake is a /proc made of files.
type fake struct {
	testing.TB
	proc
}

func newFake(t testing.TB) fake { return fake{t, proc{t.TempDir()}} }

func (f fake) file(text string, parts ...string) {
	f.Helper()
	file := f.path(parts...)
	proctest.Must(f, os.MkdirAll(filepath.Dir(file), 0o755))
	proctest.Must(f, os.WriteFile(file, []byte(text), 0o644))
}

func (f fake) link(target string, parts ...string) {
	f.Helper()
	file := f.path(parts...)
	proctest.Must(f, os.MkdirAll(filepath.Dir(file), 0o755))
	proctest.Must(f, os.Symlink(target, file))
}

// process adds a process: its ids from this /proc's namespace down to its own, its namespace (0: unreadable), and its
// start.
func (f fake) process(ids string, namespace, start int64) {
	f.Helper()
	pid, _, _ := strings.Cut(ids, " ")
	f.file(fmt.Sprintf("%s (a) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0%s\n", pid, start,
		strings.Repeat(" 0", 28)), pid, "stat")
	f.file("Name:\ta\nNSpid:\t"+strings.ReplaceAll(ids, " ", "\t")+"\n", pid, "status")
	if namespace != 0 {
		f.link(fmt.Sprintf("pid:[%d]", namespace), pid, "ns", "pid")
	}
}

// machine makes it the /proc of a witness with process id 9 that can see every process.
func (f fake) machine() {
	f.file("b00b1e5e\n", "sys", "kernel", "random", "boot_id")
	f.file("NSpid:\t9\nGid:\t0\t0\t0\t0\nGroups:\t\nCapEff:\t0000000000000000\n", "self", "status")
	f.link("time:[4026531834]", "self", "ns", "time")
	f.link("pid:[4026531836]", "self", "ns", "pid")
	f.file("22 27 0:21 / /proc rw - proc proc rw\n", "self", "mountinfo")
}

func TestHidepidIsDetected(t *testing.T) {
	mount := func(options string) string {
		return "20 1 0:5 / / rw - ext4 /dev/sda rw\n" +
			"22 27 0:21 / /proc rw,relatime shared:4 - proc proc " + options + "\n"
	}
	const nobody = "Gid:\t65534\t65534\t65534\t65534\nGroups:\t65534 \nCapEff:\t0000000000000000\n"
	member := strings.Replace(nobody, "Groups:\t", "Groups:\t4 27 ", 1)
	with := func(caps string) string { return strings.Replace(nobody, "0000000000000000", caps, 1) }
	for _, c := range []struct {
		about, mountinfo, status string
		hides                    bool
	}{
		{"as usual", mount("rw"), nobody, false},
		{"switched off", mount("rw,hidepid=0"), nobody, false},
		{"switched off, in words", mount("rw,hidepid=off"), nobody, false},
		{"invisible", mount("rw,hidepid=invisible"), nobody, true},
		{"hidepid 2", mount("rw,gid=27,hidepid=2"), nobody, true},
		{"in the group", mount("rw,gid=27,hidepid=2"), member, false},
		{"in the group, which is of no use", mount("rw,gid=27,hidepid=ptraceable"), member, true},
		{"of the group", mount("rw,hidepid=1"), strings.ReplaceAll(nobody, "65534", "0"), false},
		{"with the capability", mount("rw,hidepid=4"), with("0000000000080000"), false},
		{"with all capabilities", mount("rw,hidepid=2"), with("000001ffffffffff"), false},
		{"mounted over", mount("rw,hidepid=2") + mount("rw"), nobody, false},
		{"mounted over by one that hides", mount("rw") + mount("rw,hidepid=2"), nobody, true},
		{"elsewhere", strings.ReplaceAll(mount("rw,hidepid=2"), " /proc ", " /host/proc "), nobody, false},
	} {
		f := newFake(t)
		f.file(strings.ReplaceAll(c.mountinfo, " /proc ", " "+f.root+" "), "self", "mountinfo")
		f.file(c.status, "self", "status")
		err := f.checkVisible()
		if (err != nil) != c.hides {
			t.Errorf("%s: %v", c.about, err)
		}
		if err != nil && !strings.Contains(err.Error(), "hides the processes of other users (hidepid=") {
			t.Errorf("%s: %v", c.about, err)
		}
	}
}

func TestWitnessReportsWhatItCannotSee(t *testing.T) {
	remove := func(parts ...string) func(fake) {
		return func(f fake) { os.RemoveAll(f.path(parts...)) }
	}
	for want, change := range map[string]func(fake){
		"cannot read the boot id of this machine": remove("sys"),
		"/proc belongs to another pid namespace than the witness": func(f fake) {
			f.file("NSpid:\t812\t9\n", "self", "status")
		},
		"in a time namespace of its own": func(f fake) {
			remove("self", "ns", "time")(f)
			f.link("time:[4026532001]", "self", "ns", "time")
		},
		"cannot read the pid namespace of the witness": remove("self", "ns", "pid"),
		"which is no number": func(f fake) {
			remove("self", "ns", "pid")(f)
			f.link("pid", "self", "ns", "pid")
		},
		"no such file": remove("self", "mountinfo"),
	} {
		f := newFake(t)
		f.machine()
		change(f)
		if _, err := readMachine(f.proc, 9); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	f := newFake(t)
	f.machine()
	remove("self", "ns", "time")(f) // an older kernel
	m, err := readMachine(f.proc, 9)
	if err != nil || m.BootID != "b00b1e5e" || m.Namespace != initialPIDNamespace || !m.SeesAll() || m.Hostname == "" {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestHolderCandidates(t *testing.T) {
	const ours, theirs = 7001, 7002
	f := newFake(t)
	f.machine()
	f.process("1", initialPIDNamespace, 5)
	f.process("100 1", ours, 500)
	f.process("200 1", theirs, 500)
	f.process("300 17 1", ours, 500)
	f.process("400 1", 0, 500)
	f.process("500 2", ours, 500)
	began, err := f.byStartTime()
	if err != nil || len(began[500]) != 5 || len(began[5]) != 1 {
		t.Fatalf("%v, %v", began, err)
	}
	for pid, want := range map[int64]string{100: "certain", 200: "no", 300: "certain", 400: "may be", 500: "no",
		600: "no"} {
		may, certain, err := f.isHolder(pid, holder{namespace: ours, pid: 1, start: 500})
		if err != nil {
			t.Errorf("process %d: %v", pid, err)
		}
		got := map[bool]string{true: "may be", false: "no"}[may]
		if may && certain {
			got = "certain"
		}
		if got != want {
			t.Errorf("process %d: %s, want %s", pid, got, want)
		}
	}
	f.file("", "600", "stat")
	if _, err := f.byStartTime(); err == nil {
		t.Error("a process whose state cannot be read is left out")
	}
}

// A process whose identity cannot be read may be the holder: nothing is proven.
func TestUnreadableProcessIsNotTakenForAnother(t *testing.T) {
	for about, spoil := range map[string]func(fake){
		"no text": func(f fake) {
			proctest.Must(t, os.Remove(f.path("100", "status")))
			if err := os.Mkdir(f.path("100", "status"), 0o755); err != nil { // whose read fails
				t.Fatal(err)
			}
		},
		"no ids": func(f fake) { f.file("Name:\ta\n", "100", "status") },
	} {
		f := newFake(t)
		f.machine()
		f.process("100 1", 4026532001, 500)
		spoil(f)
		p := processes{proc: f.proc, seesAll: true,
			open: func(int64) (*handle, error) { return nil, errNoHandle }}
		_, seen, err := p.search([]holder{{namespace: 4026532001, pid: 1, start: 500}})
		if err == nil || len(seen) > 0 {
			t.Errorf("%s: the search found %v, %v", about, seen, err)
		}
	}
}
