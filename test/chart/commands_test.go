package chart

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
)

func page(t *testing.T, file string) string {
	t.Helper()
	return read(t, repository+"/"+file)
}

// installed is the release after following the whole guide, and the same with the etcd of a trial.
func installed(t *testing.T, also ...map[string]any) release {
	t.Helper()
	c := load(t)
	all := map[string]any{}
	for _, block := range guideFile(t, "values.yaml") {
		all = over(all, values(t, block))
	}
	for _, more := range also {
		all = over(all, more)
	}
	return mustRender(t, c, all)
}

// Each kubectl in the documentation is run as it stands there, for the release "locks" in the namespace "locking", as
// the guide installs it. What it names is there, and its labels find pods.
func TestDocumentedKubectlCommandsMatch(t *testing.T) {
	r := installed(t)
	kinds := map[string]string{
		"deployment": "Deployment", "deploy": "Deployment", "svc": "Service", "service": "Service",
		"sts": "StatefulSet",
	}
	named := func(kind, name string) bool {
		return slices.ContainsFunc(r.objects, func(o object) bool { return o.kind == kind && o.name == name })
	}
	names := regexp.MustCompile(`\b(deployment|deploy|svc|service|sts)[/ ]([a-z][a-z0-9-]*)`)
	selector := regexp.MustCompile(`(?:-l |--selector[= ])(\S+)`)
	found := 0
	texts := map[string]string{"NOTES.txt": r.notes}
	files, err := filepath.Glob(repository + "/docs/*.md")
	must(t, err)
	for _, file := range append(files, repository+"/README.md", directory+"/README.md") {
		texts[file] = read(t, file)
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
			for _, name := range names.FindAllStringSubmatch(command, -1) {
				if !named(kinds[name[1]], name[2]) {
					t.Errorf("%s: there is no %s %s", where, name[1], name[2])
				}
			}
			for _, match := range selector.FindAllStringSubmatch(command, -1) {
				chosen, err := labels.Parse(match[1])
				if err != nil || len(selected(t, r, chosen)) == 0 {
					t.Errorf("%s: the labels fit no pod: %v", where, err)
				}
			}
		}
	}
	if found < 12 {
		t.Errorf("only %d commands are found", found)
	}
}

// selected are the pods of a release that have the labels.
func selected(t *testing.T, r release, chosen labels.Selector) (all []corev1.PodTemplateSpec) {
	t.Helper()
	for _, pod := range pods(t, r) {
		if chosen.Matches(labels.Set(pod.Labels)) {
			all = append(all, pod)
		}
	}
	return all
}

// Whatever secret the values of the guide name, a step of the guide makes it.
func TestGuideCreatesEverySecret(t *testing.T) {
	made := regexp.MustCompile(`(?:create secret (?:generic|tls) |secretName: )([a-z0-9-]+)`)
	known := sets.New[string]()
	for _, match := range made.FindAllStringSubmatch(page(t, "docs/kubernetes.md"), -1) {
		known.Insert(match[1])
	}
	wanted := sets.New[string]()
	for _, o := range installed(t).objects {
		walk(o.fields, func(_ string, m map[string]any) {
			for _, key := range []string{"secret", "secretKeyRef"} {
				if from, ok := m[key].(map[string]any); ok && from["name"] != nil {
					wanted.Insert(from["name"].(string))
				}
			}
			if name, ok := m["secretName"].(string); ok {
				wanted.Insert(name)
			}
		})
	}
	if missing := wanted.Difference(known); len(wanted) < 3 || len(missing) > 0 {
		t.Errorf("of the secrets %q no step makes %q", sets.List(wanted), sets.List(missing))
	}
}

// An operator who restores etcd reads one page, and it may be any of these.
func TestRestorePagesRaiseTheRevision(t *testing.T) {
	for file, words := range map[string][]string{
		"docs/operations.md": nil, "docs/protocol.md": nil, "docs/fencing.md": nil,
		"docs/kubernetes.md": {"--mark-compacted", "operations.md#backup-and-restore"},
	} {
		for _, word := range append(words, "restore", "--bump-revision") {
			if !strings.Contains(page(t, file), word) {
				t.Errorf("%s does not say %q", file, word)
			}
		}
	}
}

// Enabling authentication locks out every client without a login. Each page that does it warns first.
func TestEnablingAuthenticationWarns(t *testing.T) {
	for _, file := range []string{"docs/operations.md", "docs/kubernetes.md"} {
		text := strings.ReplaceAll(page(t, file), "mutexctl etcd-setup --enable-auth", "etcdctl auth enable")
		before, _, switches := strings.Cut(text, "\netcdctl auth enable")
		_, section, _ := strings.Cut(before, "\n## ")
		for _, warning := range []string{"refuses every client", "you lock yourself out"} {
			if !switches || !strings.Contains(strings.Join(strings.Fields(section), " "), warning) {
				t.Errorf("%s does not warn before `auth enable`: %q", file, warning)
			}
		}
	}
}
