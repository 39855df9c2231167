//go:build chart

package deploy

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/clustermutex/unlocker/internal/testkit/kubetest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

var rendered = flag.String("rendered", "", "directory with the rendered scenarios of the chart")

// TestProgramsStartWithTheChartsArguments takes flags, variables, files and probes of every pod of every scenario
// and starts the programs with them, next to etcds with the users, roles and certificates that the secrets stand for.
func TestProgramsStartWithTheChartsArguments(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(*rendered, "*.yaml"))
	if err != nil || len(files) < 12 {
		t.Fatalf("only %d rendered scenarios in %q (%v): make chart", len(files), *rendered, err)
	}
	used := &usedFlags{}
	t.Cleanup(func() { used.check(t) })
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := readRelease(t, file)
			for _, pod := range r.daemons {
				r.run(t, pod, used)
			}
			r.helmTest(t)
			for _, p := range r.running {
				end(t, p)
			}
		})
	}
}

// run starts what a pod starts, and probes it.
func (r *release) run(t *testing.T, pod podSpec, used *usedFlags) {
	t.Helper()
	box := pod.Containers[0]
	root := r.mount(t, pod)
	program := path.Base(box.Command[0])
	if box.Command[0] != "/usr/bin/"+program {
		t.Errorf("%s is not where the image has it", box.Command[0])
	}
	environment := r.environment(t, box)
	command := program
	if verb := box.Args[0]; !strings.HasPrefix(verb, "-") {
		command += " " + verb
	}
	used.add(command, box.Args, environment)
	ports := map[string]string{} // what a name of a port leads to
	args := r.translate(box.Args, root)
	for _, port := range box.Ports {
		address := proctest.FreeAddr(t)
		ports[port.Name] = address
		before := strings.Join(args, "\n")
		args = strings.Split(strings.ReplaceAll(before, fmt.Sprintf("address=:%d", port.ContainerPort),
			"address="+address), "\n")
		if before == strings.Join(args, "\n") {
			t.Errorf("no flag of %s has the port %s, %d", program, port.Name, port.ContainerPort)
		}
	}
	args = append(args, "--web.shutdown-delay=0s") // the test has no kubelet to wait for
	if slices.Contains(args, "--kubernetes.pods") {
		// there is no cluster, which keeps the unlocker from nothing else; test/kube has one
		file, err := kubetest.WriteKubeconfig(t.TempDir(), "http://127.0.0.1:1")
		proctest.Must(t, err)
		args = append(args, "--kubernetes.kubeconfig="+file)
	}
	p := start(t, environment, program, args...)
	r.running = append(r.running, p)
	for _, probe := range []probe{box.LivenessProbe, box.ReadinessProbe} {
		proctest.Answers(t, "http://"+ports[probe.HTTPGet.Port]+probe.HTTPGet.Path, http.StatusOK)
	}
	for name, address := range ports {
		r.visit(t, visited{args: args, port: name, address: address})
	}
	if slices.Contains(args, "--witness.state-dir="+root) { // its node's, under its node's name
		boot := strings.TrimSpace(read(t, "/proc/sys/kernel/random/boot_id"))
		if boots := read(t, filepath.Join(root, "boots.json")); !strings.Contains(boots, `"hostname":"node-7"`) ||
			!strings.Contains(boots, boot) {
			t.Errorf("remembered is %s, want boot %s of node-7", boots, boot)
		}
	}
}

// environment is what the container sees.
func (r *release) environment(t *testing.T, c container) (all []string) {
	t.Helper()
	for _, e := range c.Env {
		value := e.Value
		if secret := e.ValueFrom.SecretKeyRef; secret.Name != "" {
			value = r.objects[secret.Name][secret.Key]
		}
		if e.ValueFrom.FieldRef.Path == "spec.nodeName" {
			value = "node-7"
		}
		if e.ValueFrom.ResourceFieldRef.Resource == "limits.memory" {
			limit := resource.MustParse(c.Resources.Limits["memory"])
			value = fmt.Sprint(limit.Value()) // as a kubelet gives it to a container
		} else if value == "" {
			t.Errorf("the variable %s comes from somewhere unknown", e.Name)
		}
		all = append(all, e.Name+"="+value)
	}
	for _, from := range c.EnvFrom {
		for name, value := range r.objects[cmp.Or(from.ConfigMap.Name, from.Secret.Name)] {
			all = append(all, name+"="+value)
		}
	}
	return all
}

// helmTest runs what `helm test` runs. An unlocker is seen a moment after it is ready.
func (r *release) helmTest(t *testing.T) {
	t.Helper()
	root := r.mount(t, r.test)
	for _, box := range r.test.Containers {
		if box.Command[0] != "/usr/bin/mutexctl" {
			t.Fatalf("helm test runs %s", box.Command)
		}
		proctest.Eventually(t, "helm test", func() error {
			check := programs.Command(t, "mutexctl", r.translate(box.Args, root)...)
			check.Env = r.environment(t, box)
			got := proctest.Run(t, check)
			if got.Code == 0 && strings.HasPrefix(got.Stdout, "LOCKS OK") {
				return nil
			}
			return fmt.Errorf("status %d: %s%s", got.Code, got.Stdout, got.Stderr)
		})
	}
}

// translate puts what is here in place of what is in a cluster: files, and where etcd is. All else stays as it was
// rendered.
func (r *release) translate(args []string, root string) []string {
	var here []string
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch {
		case name == "--etcd.endpoints":
			arg = name + "=" + r.endpoint
		case name == "--etcd.server-name":
			arg = name + "=localhost"
		case strings.HasPrefix(value, "/etc/unlocker/"):
			arg = name + "=" + root + value
		case name == "--witness.state-dir": // a directory of the node
			arg = name + "=" + root
		case value == "$(NODE_NAME)": // as a kubelet expands it
			arg = name + "=node-7"
		}
		here = append(here, arg)
	}
	return here
}

// usedFlags are the flags that some scenario gives.
type usedFlags struct {
	mu   sync.Mutex // scenarios are parallel
	seen []string
}

func (u *usedFlags) add(program string, args, environment []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, given := range slices.Concat(args, environment) {
		name, _, _ := strings.Cut(given, "=")
		u.seen = append(u.seen, program+" "+name)
	}
}

// check expects every flag of the daemons in some scenario: a flag that none of them sets is untested.
func (u *usedFlags) check(t *testing.T) {
	var programs []string
	variables := map[string]string{"unlocker": "UNLOCKER", "unlocker witness": "UNLOCKER", "mutexdash": "MUTEXDASH"}
	row := regexp.MustCompile("^\\| `(--[a-z.-]+)[^|]*\\|[^|]*\\| `([A-Z_…]+)`")
	var missing []string
	for line := range strings.Lines(read(t, repository+"/docs/flags.md")) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			programs = []string{strings.TrimSpace(heading)}
			if programs[0] == "All daemons" {
				programs = slices.Collect(maps.Keys(variables))
			}
		}
		found := row.FindStringSubmatch(line)
		for _, program := range programs {
			if found != nil && !slices.Contains(u.seen, program+" "+found[1]) &&
				!slices.Contains(u.seen, program+" "+strings.Replace(found[2], "…", variables[program], 1)) {
				missing = append(missing, program+" "+found[1])
			}
		}
	}
	slices.Sort(missing)
	known := []string{
		"unlocker --kubernetes.kubeconfig",    // for unlockers outside the cluster
		"unlocker --web.route-prefix",         // probes of a kubelet would miss it
		"unlocker witness --web.config.file",  // without TLS, as there is nothing but metrics
		"unlocker witness --web.route-prefix", // as with the unlocker
	}
	if !slices.Equal(missing, known) {
		t.Errorf("flags that no scenario of the chart gives: %q, want %q only", missing, known)
	}
}

// objects are the secrets and ConfigMaps that a volume is made of.
func (v volume) objects() (all []projection) {
	all = append(all, v.Projected.Sources...)
	if v.Secret.Name != "" {
		all = append(all, projection{Secret: source{Name: v.Secret.Name}})
	}
	if v.ConfigMap.Name != "" {
		all = append(all, projection{ConfigMap: v.ConfigMap})
	}
	return all
}

// mount puts the files of a pod where its container sees them, below a root of its own.
func (r *release) mount(t *testing.T, pod podSpec) (root string) {
	t.Helper()
	root = t.TempDir()
	volumes := map[string]volume{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = v
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		if m.MountPath == "/var/run/secrets/kubernetes.io/serviceaccount" {
			continue // from the cluster
		}
		v, ok := volumes[m.Name]
		if !ok {
			t.Errorf("no volume %s", m.Name)
		}
		for _, source := range v.objects() {
			from := cmp.Or(source.Secret.Name, source.ConfigMap.Name)
			data, known := r.objects[from]
			if !known {
				t.Errorf("the object %q is not known", from)
			}
			for to, key := range paths(source, data) {
				text, ok := data[key]
				if !ok {
					t.Errorf("%s has %q and not %s", from, slices.Collect(maps.Keys(data)), key)
				}
				write(t, filepath.Join(root, m.MountPath, to), text)
			}
		}
	}
	return root
}

// paths are the files that a source makes, with their keys.
func paths(source projection, data map[string]string) map[string]string {
	all := map[string]string{}
	for _, item := range append(source.Secret.Items, source.ConfigMap.Items...) {
		all[item.Path] = item.Key
	}
	if len(all) == 0 {
		for key := range data {
			all[key] = key
		}
	}
	return all
}
