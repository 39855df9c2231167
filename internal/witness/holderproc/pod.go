package holderproc

import (
	"path"
	"strings"
)

// ParseCgroup reads the UID of the pod from the text of /proc/PID/cgroup, as the kubelet names its groups: with the
// cgroupfs driver /kubepods/burstable/podUID/CONTAINER, with the systemd driver
// /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-CONTAINER.scope, where the
// dashes of the UID are underscores. It is empty outside of a pod, and for a process in another cgroup namespace.
func ParseCgroup(text string) (podUID string) {
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 || !strings.Contains(parts[2], "kubepods") {
			continue
		}
		for name := range strings.SplitSeq(parts[2], "/") {
			if uid := podUIDOfGroup(name); uid != "" {
				return uid
			}
		}
	}
	return ""
}

func podUIDOfGroup(name string) string {
	if slice, ok := strings.CutSuffix(name, ".slice"); ok {
		_, uid, ok := strings.Cut(slice, "-pod")
		if !ok || !strings.Contains(slice, "kubepods") {
			return ""
		}
		return podUID(strings.ReplaceAll(uid, "_", "-"))
	}
	uid, ok := strings.CutPrefix(name, "pod")
	if !ok {
		return ""
	}
	return podUID(uid)
}

// ParseMounts reads the UID of the pod and the name of the container from the text of /proc/PID/mountinfo: the kubelet
// mounts /etc/hosts from .../pods/UID/etc-hosts, and the container's termination log from
// .../pods/UID/containers/NAME/ID. Both are empty if these mounts do not exist or contradict each other.
func ParseMounts(text string) (uid, container string) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		pod, name := podOfMount(fields[3], fields[4])
		switch {
		case pod == "":
		case uid != "" && pod != uid:
			return "", ""
		default:
			uid = pod
			container += name
		}
	}
	return uid, container
}

// podOfMount returns the UID and the container of one mount, from its root and its mount point.
func podOfMount(root, at string) (uid, container string) {
	parts := strings.Split(root, "/")
	switch {
	case at == "/etc/hosts" && len(parts) >= 3 && path.Base(root) == "etc-hosts" && parts[len(parts)-3] == "pods":
		return podUID(parts[len(parts)-2]), ""
	case len(parts) >= 5 && parts[len(parts)-3] == "containers" && parts[len(parts)-5] == "pods" &&
		path.Base(at) == "termination-log":
		uid = podUID(parts[len(parts)-4])
		if uid == "" {
			return "", ""
		}
		return uid, nameOrEmpty(parts[len(parts)-2])
	}
	return "", ""
}

// podUID returns the text if it can be the UID of a pod: a UUID, or the 32 hexadecimal digits that the kubelet gives to
// pods that it reads from files.
func podUID(text string) string {
	digits := strings.ReplaceAll(text, "-", "")
	if len(digits) != 32 || strings.Trim(digits, "0123456789abcdef") != "" {
		return ""
	}
	return text
}

// maxName is the longest name of an object in Kubernetes.
const maxName = 253

// nameOrEmpty returns the text if it can be the name or the UID of a Kubernetes object, else an empty one: a strange
// environment must not make a lock fail.
func nameOrEmpty(text string) string {
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._", r)
	}
	if len(text) > maxName || strings.ContainsFunc(text, odd) {
		return ""
	}
	return text
}
