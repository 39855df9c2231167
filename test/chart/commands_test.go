package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// pages are where operators find commands. They are about the release "locks" in the namespace "locking", as the guide
// installs it.
func pages(t *testing.T) (all []string) {
	t.Helper()
	files, err := filepath.Glob(repository + "/docs/*.md")
	if err != nil || len(files) < 10 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		all = append(all, "docs/"+filepath.Base(file))
	}
	return append(all, "README.md", "deploy/helm/unlocker/README.md")
}

func page(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(repository + "/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// installed is the release after following the whole guide, and the same with the etcd of a trial.
func installed(t *testing.T, also ...map[string]any) release {
	t.Helper()
	c := load(t)
	all := map[string]any{}
	for _, block := range guideValues(t) {
		all = over(all, values(t, block))
	}
	for _, more := range also {
		all = over(all, more)
	}
	return mustRender(t, c, all)
}

// Each kubectl in the documentation is run as it stands there. What it names is there, and its labels find pods.
func TestEveryKubectlOfTheDocumentationFindsSomething(t *testing.T) {
	r := installed(t)
	kinds := map[string]string{
		"deployment": "Deployment", "deploy": "Deployment", "svc": "Service", "service": "Service",
		"sts": "StatefulSet",
	}
	named := map[string]bool{}
	for _, o := range r.objects {
		named[o.kind+" "+o.name] = true
	}
	object := regexp.MustCompile(`\b(deployment|deploy|svc|service|sts)[/ ]([a-z][a-z0-9-]*)`)
	selector := regexp.MustCompile(`(?:-l |--selector[= ])(\S+)`)
	found := 0
	texts := map[string]string{"NOTES.txt": r.notes}
	for _, file := range pages(t) {
		texts[file] = page(t, file)
	}
	for file, text := range texts {
		for _, command := range regexp.MustCompile("kubectl [^`|;\n]*").FindAllString(text, -1) {
			where := fmt.Sprintf("%s: %q", file, command)
			if regexp.MustCompile(`kubectl (create|label) namespace `).MatchString(command) {
				continue
			}
			found++
			if !strings.Contains(command+" ", "-n locking ") {
				t.Errorf("%s is not about the namespace of the release", where)
			}
			for _, name := range object.FindAllStringSubmatch(command, -1) {
				if !named[kinds[name[1]]+" "+name[2]] {
					t.Errorf("%s: there is no %s %s", where, name[1], name[2])
				}
			}
			for _, match := range selector.FindAllStringSubmatch(command, -1) {
				chosen, err := labels.Parse(match[1])
				if err != nil {
					t.Errorf("%s: %v", where, err)
				} else if !selects(t, r, chosen) {
					t.Errorf("%s: the labels fit no pod", where)
				}
			}
		}
	}
	if found < 12 {
		t.Errorf("only %d commands are found", found)
	}
}

func selects(t *testing.T, r release, chosen labels.Selector) bool {
	t.Helper()
	for _, pod := range pods(t, r) {
		if chosen.Matches(labels.Set(pod.Labels)) {
			return true
		}
	}
	return false
}

// Whatever secret the values of the guide name, a step of the guide makes it.
func TestEverySecretOfTheGuideIsMadeByAStep(t *testing.T) {
	guide := page(t, "docs/kubernetes.md")
	made := regexp.MustCompile(`(?:create secret (?:generic|tls) |secretName: )([a-z0-9-]+)`)
	var known []string
	for _, match := range made.FindAllStringSubmatch(guide, -1) {
		known = append(known, match[1])
	}
	wanted := map[string]bool{}
	r := installed(t)
	for _, pod := range pods(t, r) {
		for _, container := range pod.Spec.Containers {
			for _, variable := range container.Env {
				if from := variable.ValueFrom; from != nil && from.SecretKeyRef != nil {
					wanted[from.SecretKeyRef.Name] = true
				}
			}
		}
		for _, volume := range pod.Spec.Volumes {
			if volume.Secret != nil {
				wanted[volume.Secret.SecretName] = true
			}
			if volume.Projected == nil {
				continue
			}
			for _, source := range volume.Projected.Sources {
				if source.Secret != nil {
					wanted[source.Secret.Name] = true
				}
			}
		}
	}
	for _, o := range r.objects {
		if o.kind == "Ingress" {
			for _, match := range regexp.MustCompile(`secretName: (\S+)`).FindAllStringSubmatch(o.text, -1) {
				wanted[match[1]] = true
			}
		}
	}
	if len(wanted) < 3 {
		t.Errorf("only these secrets are wanted: %v", wanted)
	}
	for name := range wanted {
		if !slices.Contains(known, name) {
			t.Errorf("no step makes the secret %s: the guide makes %q", name, known)
		}
	}
}

// The same role has the same name on all pages, and is made before somebody gets it.
func TestTheRolesInEtcdHaveOneNameEach(t *testing.T) {
	known := map[string][]string{} // by what they may
	for _, file := range []string{"docs/operations.md", "docs/howto/etcd-roles-and-tls.md"} {
		text := page(t, file)
		const prefix = `(?:--prefix=true )?`
		permission := regexp.MustCompile(`role grant-permission ` + prefix + `(\S+) ` + prefix + `(\w+) /mutexes/\s`)
		for _, grant := range permission.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(known[grant[2]], grant[1]) {
				known[grant[2]] = append(known[grant[2]], grant[1])
			}
			if !strings.Contains(text, "etcdctl role add "+grant[1]+"\n") {
				t.Errorf("%s gives permissions to the role %s, which it does not make", file, grant[1])
			}
		}
		for _, grant := range regexp.MustCompile(`user grant-role \S+ (\S+)`).FindAllStringSubmatch(text, -1) {
			if grant[1] != "root" && !strings.Contains(text, "etcdctl role add "+grant[1]+"\n") {
				t.Errorf("%s gives the role %s, which it does not make", file, grant[1])
			}
		}
	}
	for _, may := range []string{"read", "readwrite"} {
		if len(known[may]) != 1 {
			t.Errorf("the role that may %s is called %q", may, known[may])
		}
	}
}

// An operator who restores etcd reads one page, and it may be any of these.
func TestEveryPageAboutARestoreRaisesTheRevision(t *testing.T) {
	for _, file := range []string{"docs/operations.md", "docs/kubernetes.md", "docs/protocol.md", "docs/fencing.md"} {
		text := page(t, file)
		for _, word := range []string{"restore", "--bump-revision"} {
			if !strings.Contains(text, word) {
				t.Errorf("%s does not say %q", file, word)
			}
		}
	}
	guide := page(t, "docs/kubernetes.md")
	if !strings.Contains(guide, "--mark-compacted") || !strings.Contains(guide, "operations.md#backup-and-restore") {
		t.Error("docs/kubernetes.md does not lead to a whole restore")
	}
}

// Enabling authentication locks out every client without a login. Each page that does it warns first.
func TestWhoSwitchesAuthenticationOnIsWarned(t *testing.T) {
	for _, file := range []string{"docs/operations.md", "docs/kubernetes.md"} {
		text := strings.ReplaceAll(page(t, file), "mutexctl etcd-setup --enable-auth", "etcdctl auth enable")
		before, _, switches := strings.Cut(text, "\netcdctl auth enable")
		_, section, _ := strings.Cut(before, "\n## ")
		if !switches {
			t.Errorf("%s does not switch authentication on", file)
			continue
		}
		for _, warning := range []string{"refuses every client", "you lock yourself out"} {
			if !strings.Contains(strings.Join(strings.Fields(section), " "), warning) {
				t.Errorf("%s does not warn before `auth enable`: %q", file, warning)
			}
		}
	}
}

// The example for the Prometheus operator finds the pods of the chart, too.
func TestTheExampleOfTheOperatorFitsTheChart(t *testing.T) {
	r := installed(t, map[string]any{"witness": map[string]any{"enabled": true}})
	monitors := 0
	for _, text := range strings.Split(page(t, "deploy/prometheus/operator.example.yaml"), "\n---\n") {
		var monitor struct {
			Kind string
			Spec struct {
				Selector            struct{ MatchLabels map[string]string }
				PodMetricsEndpoints []struct{ Port string }
			}
		}
		if err := yaml.Unmarshal([]byte(text), &monitor); err != nil || monitor.Kind != "PodMonitor" {
			t.Fatalf("%v: %s", err, text)
		}
		monitors++
		fits := 0
		for _, pod := range pods(t, r) {
			if !labels.SelectorFromSet(monitor.Spec.Selector.MatchLabels).Matches(labels.Set(pod.Labels)) {
				continue
			}
			for _, port := range pod.Spec.Containers[0].Ports {
				if port.Name == monitor.Spec.PodMetricsEndpoints[0].Port {
					fits++
				}
			}
		}
		if fits != 1 {
			t.Errorf("this fits %d kinds of pods:\n%s", fits, text)
		}
	}
	if monitors != 3 {
		t.Errorf("%d monitors", monitors)
	}
}
