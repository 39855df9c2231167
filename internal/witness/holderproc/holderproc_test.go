package holderproc_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/internal/witness/holderproc"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const uid = "0b5d7e0a-6d4d-4a3e-9a53-0d7a6c2f9f10"

// stat returns a line of /proc/PID/stat for a program with this name.
func stat(name, state, threads, start string, more ...string) string {
	return "4711 (" + name + ") " + state + " 1 4711 4711 34817 4711 4194304 1 2 3 4 5 6 7 8 20 0 " + threads +
		" 0 " + start + " 1000 200" + strings.Repeat(" 0", 27) + strings.Join(more, "")
}

func TestStatIsParsedForAnyProgramName(t *testing.T) {
	for _, name := range []string{"sleep", "a b", "a) S 1 1 1", ")", "(", "a\nb", "", "\xff) Z"} {
		got, ok := holderproc.ParseStat(stat(name, "S", "3", "187654321", " 9\n"))
		if want := (holderproc.Stat{State: 'S', Threads: 3, Start: 187654321, ExitCode: 9}); !ok || got != want {
			t.Errorf("%q: %+v %v, want %+v", name, got, ok, want)
		}
	}
	for _, bad := range []string{"", "4711", "4711 (sleep)", "4711 (sleep) S 1 2", stat("a", "S", "1", "x"),
		stat("a", "S", "x", "1"), stat("a", "SS", "1", "1"), stat("a", "S", "1", "0"),
		stat("a", "S", "1", "99999999999999999999"), stat("a", "S", "1", "1", " x")} {
		if got, ok := holderproc.ParseStat(bad); ok {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
	old := strings.TrimSuffix(stat("a", "R", "1", "5"), strings.Repeat(" 0", 27)) // of a kernel with fewer fields
	if got, ok := holderproc.ParseStat(old); !ok || got.Start != 5 {
		t.Errorf("%q is read as %+v %v", old, got, ok)
	}
}

func TestEndedProcessDiffersFromOneWithoutItsMainThread(t *testing.T) {
	for _, c := range []struct {
		state, threads string
		ended          bool
	}{{"R", "1", false}, {"D", "1", false}, {"T", "1", false}, {"Z", "1", true}, {"Z", "4", false}, {"X", "1", true}} {
		got, ok := holderproc.ParseStat(stat("a", c.state, c.threads, "7"))
		if !ok || got.Ended() != c.ended {
			t.Errorf("state %s with %s threads: ended %v, want %v", c.state, c.threads, got.Ended(), c.ended)
		}
	}
}

func TestNamespacesAndProcessIDsAreParsed(t *testing.T) {
	for link, want := range map[string]int64{"pid:[4026531836]": 4026531836, "time:[4026531834]": 4026531834, "": 0,
		"pid:[]": 0, "pid:[x]": 0, "pid:[-4]": 0, "pid:[12": 0} {
		if got, ok := holderproc.ParseNamespace(link); ok != (want != 0) || ok && got != want {
			t.Errorf("%q: %d %v", link, got, ok)
		}
	}
	for status, want := range map[string]string{
		"Name:\ta\nNSpid:\t812\t17\t1\nNSpgid:\t812\t17\t1\n": "[812 17 1]",
		"NSpid:\t812":            "[812]",
		"Name:\tNSpid: 4\n":      "[]",
		"NSpid:\t812\tx\n":       "[]",
		"NSpid:\t-1\n":           "[]",
		"":                       "[]",
		"NSpid:\nNSpid:\t12\n\n": "[]",
	} {
		pids := holderproc.ParseNSpid(status)
		text := make([]string, len(pids))
		for i, pid := range pids {
			text[i] = strconv.FormatInt(pid, 10)
		}
		if got := "[" + strings.Join(text, " ") + "]"; got != want {
			t.Errorf("%q: %s, want %s", status, got, want)
		}
	}
}

func TestPodIsReadFromTheCgroup(t *testing.T) {
	slice := strings.ReplaceAll(uid, "-", "_")
	static := strings.Repeat("deadbeef", 4)
	for text, want := range map[string]string{
		"12:memory:/kubepods/burstable/pod" + uid + "/4f1e\n":                                                uid,
		"1:name=systemd:/user.slice\n4:cpu,cpuacct:/kubepods/pod" + uid + "/4f1e\n":                          uid,
		"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + slice + ".slice/cri-4f.scope": uid,
		"0::/kubepods.slice/kubepods-pod" + slice + ".slice/crio-4f.scope\n":                                 uid,
		"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + slice + ".slice/x.scope\n":         uid,
		"0::/system.slice/a-pod" + slice + ".slice/x.scope\n":                                                "",
		"0::/kubepods/besteffort/pod" + static + "/x\n":                                                      static,
		"0::/\n":                                    "",
		"0::/system.slice/docker-4f1e.scope\n":      "",
		"0::/podman/pod" + uid + "/x\n":             "",
		"0::/kubepods/podstuff/x\n":                 "",
		"0::/kubepods/pod" + uid + "';drop table\n": "",
		"nothing": "",
		"":        "",
	} {
		if got := holderproc.ParseCgroup(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

const (
	hosts = "1 2 8:1 /var/lib/kubelet/pods/" + uid + "/etc-hosts /etc/hosts rw,relatime - ext4 /dev/sda1 rw\n"
	words = "1 2 8:1 /lib/kubelet/pods/" + uid + "/containers/worker/7b1d /dev/termination-log rw - ext4 /dev/sda1 rw\n"
)

func TestPodAndContainerAreReadFromTheMounts(t *testing.T) {
	other := strings.ReplaceAll(hosts, uid, "11111111-6d4d-4a3e-9a53-0d7a6c2f9f10")
	for _, c := range []struct{ text, uid, container string }{
		{hosts, uid, ""},
		{words, uid, "worker"},
		{"22 27 0:21 / /proc rw,relatime - proc proc rw\n" + hosts + words, uid, "worker"},
		{hosts + other, "", ""},
		{strings.ReplaceAll(hosts, uid, "x"), "", ""},
		{strings.ReplaceAll(hosts, " /etc/hosts", " /mnt/hosts"), "", ""},
		{strings.ReplaceAll(words, "worker", "a\x1bb"), uid, ""},
		{"a b c\n", "", ""},
		{"", "", ""},
	} {
		if uid, container := holderproc.ParseMounts(c.text); uid != c.uid || container != c.container {
			t.Errorf("%q: %q %q, want %q %q", c.text, uid, container, c.uid, c.container)
		}
	}
}

// machine is a fake source of files and links.
type machine map[string]string

func (m machine) source() holderproc.Source {
	read := func(name string) string { return m[name] }
	return holderproc.Source{Read: read, Link: read, Getenv: read}
}

func with(base machine, more machine) machine {
	all := maps.Clone(base)
	maps.Copy(all, more)
	return all
}

func TestOwnProcessIdentity(t *testing.T) {
	linux := machine{
		"/proc/sys/kernel/random/boot_id": "b00b1e5e-0000-4000-8000-000000000001\n",
		"/proc/self/ns/pid":               "pid:[4026531836]",
		"/proc/self/ns/time":              "time:[4026531834]",
		"/proc/self/stat":                 stat("a) b", "R", "9", "4242"),
	}
	pod := machine{"POD_NAMESPACE": "billing", "POD_NAME": "worker-0", "POD_UID": uid, "CONTAINER_NAME": "main"}
	for _, c := range []struct {
		about string
		given machine
		want  func(*metadata.Process) // what is different
	}{
		{"on a machine", linux, func(*metadata.Process) {}},
		{"on another system", machine{}, func(p *metadata.Process) { *p = metadata.Process{} }},
		{"on another system in a pod", pod, func(p *metadata.Process) {
			*p = metadata.Process{PodNamespace: "billing", PodName: "worker-0", PodUID: uid, Container: "main"}
		}},
		{"in a time namespace of its own", with(linux, machine{"/proc/self/ns/time": "time:[4026532001]"}),
			func(p *metadata.Process) { p.Start = 0 }},
		{"on a kernel without time namespaces", with(linux, machine{"/proc/self/ns/time": ""}),
			func(*metadata.Process) {}},
		{"without its pid namespace", with(linux, machine{"/proc/self/ns/pid": ""}),
			func(p *metadata.Process) { p.Start, p.PIDNamespace = 0, 0 }},
		{"in a pod without the downward API", with(linux, machine{"/proc/self/mountinfo": hosts + words,
			"/var/run/secrets/kubernetes.io/serviceaccount/namespace": "billing\n"}), func(p *metadata.Process) {
			p.PodNamespace, p.PodUID = "billing", uid
			p.Container = "worker"
		}},
		{"in a pod of which only the group tells",
			with(linux, machine{"/proc/self/cgroup": "0::/kubepods/pod" + uid + "/x\n"}),
			func(p *metadata.Process) { p.PodUID = uid }},
		{"where mounts and environment tell of two pods", with(linux, machine{"/proc/self/mountinfo": words,
			"POD_UID": "another"}), func(p *metadata.Process) { p.PodUID = "another" }},
		{"outside of a pod, where a variable has the same name", with(linux, machine{"CONTAINER_NAME": "main",
			"POD_NAMESPACE": "billing"}), func(*metadata.Process) {}},
		{"where the environment is hostile", with(linux, machine{"POD_NAME": "a\nb", "POD_UID": "<b>",
			"POD_NAMESPACE": strings.Repeat("a", 300), "CONTAINER_NAME": "\xff"}), func(*metadata.Process) {}},
	} {
		want := metadata.Process{BootID: "b00b1e5e-0000-4000-8000-000000000001", Start: 4242, PIDNamespace: 4026531836}
		c.want(&want)
		if got := holderproc.Self(c.given.source()); got != want {
			t.Errorf("%s: %+v, want %+v", c.about, got, want)
		}
	}
}

func TestRunningProcessMatchesProc(t *testing.T) {
	if runtime.GOOS != "linux" {
		if got := holderproc.Self(holderproc.System()); got.BootID != "" || got.Start != 0 {
			t.Errorf("%+v", got)
		}
		return
	}
	got := holderproc.Self(holderproc.System())
	if len(got.BootID) != 36 || got.Start == 0 || got.PIDNamespace == 0 {
		t.Fatalf("%+v", got)
	}
	out, err := exec.Command("sh", "-c", "exec cat /proc/$PPID/stat").Output()
	proctest.Must(t, err)
	if stat, ok := holderproc.ParseStat(string(out)); !ok || stat.Start != got.Start || stat.Ended() ||
		!strings.HasPrefix(string(out), strconv.Itoa(os.Getpid())+" ") {
		t.Errorf("a child sees %s, %+v, and we see %+v", out, stat, got)
	}
}

func FuzzWhatProcSays(f *testing.F) {
	for _, seed := range []string{stat("a) b", "S", "3", "17"), hosts + words, "0::/kubepods/pod" + uid + "/x\n",
		"NSpid:\t812\t17\t1\n", "pid:[4026531836]", ")", "kubepods", "0::/kubepods-pod.slice"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if s, ok := holderproc.ParseStat(text); ok && s.Start <= 0 {
			t.Errorf("%q began at %d", text, s.Start)
		}
		if inode, ok := holderproc.ParseNamespace(text); ok && inode <= 0 {
			t.Errorf("%q is the namespace %d", text, inode)
		}
		for _, pid := range holderproc.ParseNSpid(text) {
			if pid <= 0 {
				t.Errorf("%q has the process id %d", text, pid)
			}
		}
		// Everything that was read must be valid in a record.
		every := func(string) string { return text }
		p := holderproc.Self(holderproc.Source{Read: every, Link: every, Getenv: every})
		for field, value := range reflect.ValueOf(p).Fields() {
			value, name := fmt.Sprint(value), field.Name
			if len(value) > 253 || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) {
				t.Errorf("%q: the record would say %s %q", text, name, value)
			}
		}
	})
}
