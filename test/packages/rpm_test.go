//go:build packages

package packages

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestRPMMatchesTheDeb compares the files of both, and lets rpm install, upgrade and remove in a root directory
// where no systemd runs.
func TestRPMMatchesTheDeb(t *testing.T) {
	debs := newer.files(t, "deb")
	rpms := newer.files(t, "rpm")
	licence := strings.NewReplacer("/copyright", "/LICENSE")
	for name, file := range rpms {
		var ours, theirs []string
		for line := range strings.Lines(must(t, exec.Command("rpm", "-qp", "--list", "--verbose", file))) {
			fields := strings.Fields(line)
			if path := fields[len(fields)-1]; fields[0][0] != 'd' || path == "/etc/unlocker" {
				ours = append(ours, path)
			}
		}
		for line := range strings.Lines(must(t, exec.Command("dpkg-deb", "--contents", debs[name]))) {
			path := strings.TrimPrefix(strings.Fields(line)[5], ".")
			if !strings.HasSuffix(path, "/") || path == "/etc/unlocker/" {
				theirs = append(theirs, licence.Replace(strings.TrimSuffix(path, "/")))
			}
		}
		slices.Sort(ours)
		slices.Sort(theirs)
		if !slices.Equal(ours, theirs) {
			t.Errorf("%s: the rpm has\n%q\nand the deb\n%q", name, ours, theirs)
		}
		must(t, exec.Command("rpm", "--checksig", "--nosignature", file))
	}
	if got, want := must(t, exec.Command("rpm", "-qp", "--configfiles", rpms["unlocker"])),
		"/etc/unlocker/unlocker-witness.env\n/etc/unlocker/unlocker.env\n"; got != want {
		t.Errorf("settings: %q, want %q", got, want)
	}

	root := unpack(t)
	rpm := func(args ...string) string {
		t.Helper()
		return must(t, exec.Command("rpm", append([]string{"--root=" + root, "--nodeps"}, args...)...))
	}
	old := older.files(t, "rpm")
	rpm("-i", old["unlocker"], old["mutexdash"], old["mutexctl"])
	users := must(t, exec.Command("grep", "-cE", "^(unlocker|unlocker-witness|mutexdash):", root+"/etc/passwd"))
	if users != "3\n" {
		t.Errorf("of the users, there are %s", users)
	}
	must(t, exec.Command("sh", "-c", "echo '# ours' >> "+root+"/etc/unlocker/unlocker.env"))
	must(t, exec.Command("systemctl", "--root="+root, "enable", "unlocker.service"))
	rpm("-U", rpms["unlocker"], rpms["mutexdash"], rpms["mutexctl"])
	if version := must(t, exec.Command("chroot", root, "/usr/bin/unlocker", "--version")); !strings.Contains(version,
		newer.version) {
		t.Errorf("after the upgrade: %s", version)
	}
	if last := must(t, exec.Command("tail", "-n", "1", root+"/etc/unlocker/unlocker.env")); last != "# ours\n" {
		t.Errorf("after the upgrade the settings end with %q", last)
	}
	wants := root + "/etc/systemd/system/multi-user.target.wants"
	if enabled := must(t, exec.Command("ls", wants)); !strings.Contains(enabled, "unlocker.service\n") {
		t.Errorf("the upgrade disabled the service: %s", enabled)
	}
	rpm("-e", "unlocker", "mutexdash", "mutexctl")
	if left := must(t, exec.Command("ls", wants)); strings.Contains(left, "unlocker") {
		t.Errorf("removed, and still wanted at the next boot: %s", left)
	}
}

// TestManualsAreWellFormed lets mandoc read every page, and shells every completion.
func TestManualsAreWellFormed(t *testing.T) {
	root := t.TempDir()
	for _, file := range newer.files(t, "deb") {
		must(t, exec.Command("dpkg-deb", "--extract", file, root))
	}
	must(t, exec.Command("gunzip", "-r", root+"/usr/share/man"))
	pages := strings.Fields(must(t, exec.Command("sh", "-c", "ls "+root+"/usr/share/man/man[18]/*")))
	if len(pages) < 20 {
		t.Errorf("there are only the pages %q", pages)
	}
	// A page that belongs to no day has no date.
	complaints, _ := exec.Command("mandoc", append([]string{"-Tlint", "-Wwarning"}, pages...)...).CombinedOutput()
	for line := range strings.Lines(string(complaints)) {
		if !strings.Contains(line, "missing date") {
			t.Error(line)
		}
	}
	for _, program := range []string{"unlocker", "mutexdash", "mutexctl"} {
		script := root + "/usr/share/bash-completion/completions/" + program
		out := must(t, exec.Command("bash", "-c", `source "$1"; complete -p "$2"`, "bash", script, program))
		if !strings.Contains(out, "__start_"+program) {
			t.Errorf("bash completes %s by %q", program, out)
		}
	}
}
