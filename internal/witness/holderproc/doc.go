// Package holderproc reads what identifies a process forever: the boot of its machine, its pid namespace, when it
// began, and in Kubernetes its pod and container. A witness needs that to prove the end of a process.
//
// What cannot be learned is left out, and never guessed: a wrong identity would prove the end of a process that lives.
// On other systems than Linux there is nothing to learn but the pod, from the environment.
package holderproc
