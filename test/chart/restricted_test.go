package chart

import (
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// pods are all pods of a release, by the object that makes them.
func pods(t *testing.T, r release) map[string]corev1.PodTemplateSpec {
	t.Helper()
	found := map[string]corev1.PodTemplateSpec{}
	for _, o := range r.objects {
		var made struct {
			Spec struct{ Template corev1.PodTemplateSpec }
		}
		into := any(&made)
		pod := &made.Spec.Template
		switch o.kind {
		case "Pod":
			into = pod
		case "Job", "CronJob", "ReplicaSet":
			t.Fatalf("%s creates pods that are not checked", o.kind)
		case "Deployment", "StatefulSet", "DaemonSet":
		default:
			continue
		}
		decode(t, o, into)
		found[o.name] = *pod
	}
	return found
}

// That the API server takes the pods where they have to be restricted, test/kube shows.
func TestEveryPodOfEveryScenarioIsRestricted(t *testing.T) {
	c := load(t)
	for name, values := range scenarios(t) {
		all := pods(t, mustRender(t, c, values))
		if len(all) < 2 {
			t.Errorf("%s: pods of %q only", name, slices.Sorted(maps.Keys(all)))
		}
		for of, pod := range all {
			for _, problem := range beyondRestricted(pod.Spec) {
				t.Errorf("%s, pod of %s: %s", name, of, problem)
			}
		}
	}
	plain := corev1.PodSpec{Containers: []corev1.Container{{Name: "plain"}}}
	if problems := beyondRestricted(plain); len(problems) < 3 {
		t.Errorf("a pod without any security has the problems %q", problems)
	}
}

// beyondRestricted is what we want besides.
func beyondRestricted(spec corev1.PodSpec) (problems []string) {
	want := func(ok bool, problem string) {
		if !ok {
			problems = append(problems, problem)
		}
	}
	is := func(b *bool, wanted bool) bool { return b != nil && *b == wanted }
	for _, volume := range spec.Volumes {
		if on := volume.HostPath; on != nil { // of a witness that remembers boots
			want(on.Path == "/etc/machine-id" || on.Path == "/var/lib/unlocker-witness", "it sees "+on.Path)
		}
	}
	want(is(spec.AutomountServiceAccountToken, false), "it gets a token of the cluster")
	want(is(spec.EnableServiceLinks, false), "Services become variables, and those may be taken for flags")
	for _, container := range spec.Containers {
		s := container.SecurityContext
		want(s != nil && is(s.ReadOnlyRootFilesystem, true), container.Name+" may write to its root")
		want(!container.Resources.Limits.Memory().IsZero(), container.Name+" has no limit of memory")
		want(!container.Resources.Requests.Cpu().IsZero(), container.Name+" asks for no processor")
		for _, mount := range container.VolumeMounts {
			want(mount.SubPath == "" && mount.SubPathExpr == "",
				mount.Name+" is mounted by subPath, which does not follow a changed secret")
		}
	}
	return problems
}
