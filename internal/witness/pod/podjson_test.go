package pod_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/witness/pod"
	"github.com/clustermutex/unlocker/internal/witness/pod/podproof"
)

// shaped is a pod with one container, "worker", whose parts vary.
type shaped struct {
	meta, spec, container string // members
	status, state, last   string
	id                    string
}

func (s shaped) json() string {
	join := func(first, more string) string { return strings.TrimSuffix(first+","+more, ",") }
	return fmt.Sprintf(`{"metadata":{%s},"spec":{%s,"containers":[{%s}]},"status":{%s}}`,
		join(`"namespace":"shop","name":"a","uid":"u1"`, s.meta), join(`"nodeName":"n"`, s.spec),
		join(`"name":"worker"`, s.container), join(fmt.Sprintf(
			`"containerStatuses":[{"name":"worker","containerID":%q,"state":{%s},"lastState":{%s}}]`, s.id, s.state,
			s.last), s.status))
}

func brief(t *testing.T, text string) podproof.Pod {
	t.Helper()
	p, err := pod.Brief(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return p
}

const (
	first = `"terminated":{"exitCode":1,"startedAt":"2026-01-01T10:00:00Z","finishedAt":"2026-01-01T11:00:00Z",
"containerID":"c1"}`
	well = `"terminated":{"exitCode":0,"startedAt":"2026-01-01T10:00:00Z","finishedAt":"2026-01-01T11:00:00Z",
"containerID":"c1"}`
	unseen  = `"terminated":{"exitCode":137,"reason":"ContainerStatusUnknown","startedAt":null,"finishedAt":null}`
	started = `"running":{"startedAt":"2026-01-01T12:00:00Z"}`
)

func TestNewestContainerStart(t *testing.T) {
	for about, c := range map[string]struct {
		pod      shaped
		id       string // of the newest start
		ended    string // id of the container whose end is reported; "none" while it runs
		last     bool   // the end before that is known
		wasStart bool   // its start is known
	}{
		"not started": {
			shaped{state: `"waiting":{"reason":"ContainerCreating"}`}, "", "none", false, false},
		"created":                  {shaped{state: `"waiting":{}`, id: "c1"}, "c1", "none", false, false},
		"running":                  {shaped{state: started, id: "c1"}, "c1", "none", false, true},
		"running again":            {shaped{state: started, last: first, id: "c2"}, "c2", "none", true, true},
		"ended":                    {shaped{state: first, id: "c1"}, "c1", "c1", false, true},
		"waits for its restart":    {shaped{state: `"waiting":{}`, last: first, id: "c1"}, "c1", "c1", false, true},
		"the next start is made":   {shaped{state: `"waiting":{}`, last: first, id: "c2"}, "c1", "c1", false, true},
		"lost":                     {shaped{state: unseen, id: "c1"}, "c1", "", false, false},
		"lost without an id":       {shaped{state: unseen}, "", "", false, false},
		"given up while it waited": {shaped{state: unseen, last: first, id: "c1"}, "c1", "c1", false, true},
		"lost in its second start": {shaped{state: unseen, last: first, id: "c2"}, "c2", "", true, false},
	} {
		got := brief(t, c.pod.json()).Containers[0]
		ended := "none"
		if got.End != nil {
			ended = got.End.ID
		}
		if got.ID != c.id || ended != c.ended || (got.Last != nil) != c.last || got.StartedAt.IsZero() == c.wasStart {
			t.Errorf("%s: %+v, ended: %s", about, got, ended)
		}
	}
}

func TestRestartableContainers(t *testing.T) {
	for about, c := range map[string]struct {
		pod  shaped
		want bool
	}{
		"by default":                   {shaped{state: first}, true},
		"always":                       {shaped{spec: `"restartPolicy":"Always"`, state: well}, true},
		"never":                        {shaped{spec: `"restartPolicy":"Never"`, state: first}, false},
		"on failure, failed":           {shaped{spec: `"restartPolicy":"OnFailure"`, state: first}, true},
		"on failure, and it went well": {shaped{spec: `"restartPolicy":"OnFailure"`, state: well}, false},
		"on failure, and it runs":      {shaped{spec: `"restartPolicy":"OnFailure"`, state: started}, true},
		"on failure, and it was lost":  {shaped{spec: `"restartPolicy":"OnFailure"`, state: unseen}, true},
		"never, but this one": {shaped{spec: `"restartPolicy":"Never"`, container: `"restartPolicy":"Always"`,
			state: first}, true},
		"always, but not this one": {shaped{spec: `"restartPolicy":"Always"`, container: `"restartPolicy":"Never"`,
			state: first}, false},
		"never, but for some exit code": {shaped{spec: `"restartPolicy":"Never"`,
			container: `"restartPolicy":"Never","restartPolicyRules":[{"action":"RestartAllContainers"}]`,
			state:     first}, true},
		"a policy of the future": {shaped{spec: `"restartPolicy":"Sometimes"`, state: first}, true},
	} {
		if got := brief(t, c.pod.json()).Containers[0].MayRestart; got != c.want {
			t.Errorf("%s: %v", about, got)
		}
	}
}

func TestOtherPodProperties(t *testing.T) {
	plain := brief(t, shaped{state: started}.json())
	if plain.Deleting != podproof.Never || plain.KubeletEnded || plain.Static || plain.OwnClock ||
		plain.Disruption != "" {
		t.Errorf("%+v", plain)
	}
	p := brief(t, shaped{
		meta: `"annotations":{"kubernetes.io/config.mirror":"x"},"deletionTimestamp":"2026-01-01T12:00:00Z",` +
			`"deletionGracePeriodSeconds":30`,
		spec: `"runtimeClassName":"kata"`,
		status: `"phase":"Failed","reason":"Evicted",` +
			`"conditions":[{"type":"Ready","status":"False","reason":"PodFailed"},` +
			`{"type":"DisruptionTarget","status":"True","reason":"TerminationByKubelet"}]`,
	}.json())
	if p.Deleting == podproof.Never || p.Grace != 30*time.Second || !p.Static || !p.OwnClock || !p.KubeletEnded ||
		p.Phase != "Failed" || p.Reason != "Evicted" || p.Disruption != "TerminationByKubelet" {
		t.Errorf("%+v", p)
	}
	for about, condition := range map[string]string{
		"not ready for another reason": `{"type":"Ready","status":"False","reason":"ContainersNotReady"}`,
		"ready":                        `{"type":"Ready","status":"True","reason":"PodFailed"}`,
		"another condition":            `{"type":"PodScheduled","status":"False","reason":"PodFailed"}`,
	} {
		if brief(t, shaped{status: `"phase":"Failed","conditions":[` + condition + `]`}.json()).KubeletEnded {
			t.Errorf("%s: accepted as the kubelet's report", about)
		}
	}
}

func TestContainersOfAllKindsAreFoundByName(t *testing.T) {
	p := brief(t, `{"spec":{"restartPolicy":"Never","containers":[{"name":"a"}],"initContainers":[{"name":"b"},
{"name":"c","restartPolicy":"Always"}],"ephemeralContainers":[{"name":"d"}]},
"status":{"containerStatuses":[{"name":"a","containerID":"1","state":{`+started+`}}],
"initContainerStatuses":[{"name":"b","containerID":"2","state":{`+first+`}},
{"name":"c","containerID":"3","state":{`+started+`}}],
"ephemeralContainerStatuses":[{"name":"d","containerID":"4","state":{`+started+`}}]}}`)
	got := []string{}
	for _, c := range p.Containers {
		got = append(got, fmt.Sprint(c.Name, c.ID, c.MayRestart))
	}
	if want := "[a1false bc1true c3true d4true]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

func FuzzBrief(f *testing.F) {
	f.Add(shaped{state: started, last: first, id: "c2"}.json())
	f.Add(podIn("Running", over))
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) {
			return
		}
		p, err := pod.Brief(text)
		if err != nil {
			return
		}
		for _, c := range p.Containers {
			if c.NewSince != podproof.Never || c.EndedSince != podproof.Never {
				t.Errorf("%+v", c)
			}
		}
	})
}
