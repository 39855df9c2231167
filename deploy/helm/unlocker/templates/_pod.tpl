{{/*
What is the same in the pods of all components: who they are, what they may, where they run.
(dict "root" . "component" "unlocker" "values" .Values.unlocker "container" the container as YAML
"permissions" the ConfigMap with the permissions, or "" "annotations" of the pod
"env" more variables as YAML "hostPID" whether it sees the processes of its node)
*/}}
{{- define "unlocker.pod" -}}
{{- $root := .root -}}
{{- $c := .values -}}
metadata:
  labels:
    {{- include "unlocker.podLabels" (list $root .component $c.podLabels) | nindent 4 }}
  {{- with merge (dict) $c.podAnnotations .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include (ternary "unlocker.podsAccountName" "unlocker.serviceAccountName" (eq .component "unlocker")) $root }}
  {{- include "unlocker.podSecurity" $root | nindent 2 }}
  {{- if hasKey . "hostPID" }}
  hostPID: true # to see the processes of its node
  {{- end }}
  terminationGracePeriodSeconds: {{ add $c.shutdown.delaySeconds $c.shutdown.timeoutSeconds 5 }}
  {{- with $c.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $c.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $c.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $c.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with dig "topologySpread" "topologyKeys" "" $c }}
  topologySpreadConstraints:
    {{- range . }}
    - topologyKey: {{ . }}
      maxSkew: 1
      whenUnsatisfiable: {{ $c.topologySpread.whenUnsatisfiable }}
      labelSelector:
        matchLabels:
          {{- include "unlocker.selector" (list $root $.component) | nindent 10 }}
      matchLabelKeys: [pod-template-hash]
    {{- end }}
  {{- end }}
  containers:
    - {{ .container | indent 6 | trim }}
      env:
        - name: GOMEMLIMIT # the collector works harder before the kernel kills
          valueFrom:
            resourceFieldRef:
              containerName: {{ .component }}
              resource: limits.memory
        {{- with .env }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with $c.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $c.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- toYaml $root.Values.securityContext | nindent 8 }}
      resources:
        {{- toYaml $c.resources | nindent 8 }}
      {{- $mounts := include "unlocker.mounts" . }}
      {{- with $mounts }}
      volumeMounts:
        {{- . | nindent 8 }}
      {{- end }}
    {{- with get $c "extraContainers" }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with include "unlocker.volumes" . }}
  volumes:
    {{- . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* What the pod may in Kubernetes and on its node: nothing. */}}
{{- define "unlocker.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat .Values.image.pullSecrets (default list .Values.global.imagePullSecrets) }}
imagePullSecrets:
  {{- range . }}
  - name: {{ ternary . (get (ternary (dict) . (kindIs "string" .)) "name") (kindIs "string" .) }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Whether a component has files from secrets for etcd: (list . identity). */}}
{{- define "unlocker.hasEtcdFiles" -}}
{{- $etcd := (index . 0).Values.etcd -}}
{{- $identity := index . 1 -}}
{{- if or $etcd.ca.secret $etcd.ca.configMap $identity.clientCert.secret $identity.password.secret }}true{{ end -}}
{{- end }}

{{/*
The files for etcd under fixed names, whatever the keys in the secrets are called, and no other keys. A projected volume follows
its secrets, unlike a subPath. (list . identity)
*/}}
{{- define "unlocker.etcdVolume" -}}
{{- $etcd := (index . 0).Values.etcd -}}
{{- $identity := index . 1 -}}
- name: etcd
  projected:
    defaultMode: 0440
    sources:
      {{- if $etcd.ca.secret }}
      - secret:
          name: {{ $etcd.ca.secret }}
          items:
            - {key: {{ $etcd.ca.key }}, path: ca.crt}
      {{- else if $etcd.ca.configMap }}
      - configMap:
          name: {{ $etcd.ca.configMap }}
          items:
            - {key: {{ $etcd.ca.key }}, path: ca.crt}
      {{- end }}
      {{- with $identity.clientCert }}
      {{- if .secret }}
      - secret:
          name: {{ .secret }}
          items:
            - {key: {{ .certKey }}, path: tls.crt}
            - {key: {{ .keyKey }}, path: tls.key}
      {{- end }}
      {{- end }}
      {{- with $identity.password }}
      {{- if .secret }}
      - secret:
          name: {{ .secret }}
          items:
            - {key: {{ .key }}, path: password}
      {{- end }}
      {{- end }}
{{- end }}

{{- define "unlocker.volumes" -}}
{{- if include "unlocker.hasEtcdFiles" (list .root .values.etcd) }}
{{ include "unlocker.etcdVolume" (list .root .values.etcd) }}
{{- end }}
{{- with dig "webConfig" "" .values }}
{{- if .secret }}
- name: web
  projected:
    defaultMode: 0440
    sources:
      - secret:
          name: {{ .secret }}
      {{- with .tlsSecret }}
      - secret:
          name: {{ . }}
      {{- end }}
{{- end }}
{{- end }}
{{- with .permissions }}
- name: permissions
  configMap:
    name: {{ . }}
{{- end }}
{{- if and (eq .component "unlocker") .root.Values.kubernetes.pods }}
- name: kubernetes # for the API server; no other pod has it
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3607}
      - configMap:
          name: kube-root-ca.crt
          items: [{key: ca.crt, path: ca.crt}]
{{- end }}
{{- if dig "state" "hostPath" "" .values }}
- name: state # it outlives the pod, and the boot
  hostPath: {path: {{ .values.state.hostPath }}, type: Directory}
- name: machine-id # by which it notices that the directory is another machine's
  hostPath: {path: /etc/machine-id, type: File}
{{- end }}
{{- with .values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "unlocker.mounts" -}}
{{- if include "unlocker.hasEtcdFiles" (list .root .values.etcd) }}
- {name: etcd, mountPath: /etc/unlocker/etcd, readOnly: true}
{{- end }}
{{- if dig "webConfig" "secret" "" .values }}
- {name: web, mountPath: /etc/unlocker/web, readOnly: true}
{{- end }}
{{- if .permissions }}
- {name: permissions, mountPath: /etc/unlocker/permissions, readOnly: true}
{{- end }}
{{- if and (eq .component "unlocker") .root.Values.kubernetes.pods }}
- {name: kubernetes, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end }}
{{- if dig "state" "hostPath" "" .values }}
- {name: state, mountPath: /var/lib/unlocker-witness}
- {name: machine-id, mountPath: /etc/machine-id, readOnly: true}
{{- end }}
{{- with .values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* How pods are replaced. A strategy of another type has no details. */}}
{{- define "unlocker.strategy" -}}
type: {{ .type }}
{{- with .rollingUpdate }}
{{- if eq $.type "RollingUpdate" }}
rollingUpdate: {{ toJson . }}
{{- end }}
{{- end }}
{{- end }}

{{/* A Deployment of replicas that are all active. (the dict of unlocker.pod) */}}
{{- define "unlocker.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "unlocker.componentName" (list .root .component) }}
  namespace: {{ .root.Release.Namespace }}
  {{- include "unlocker.meta" (list .root .component dict dict) | nindent 2 }}
spec:
  replicas: {{ .values.replicas }}
  revisionHistoryLimit: 3
  strategy:
    {{- include "unlocker.strategy" (default (dict "type" "RollingUpdate" "rollingUpdate" (dict "maxSurge" 1 "maxUnavailable" 0)) .values.strategy) | nindent 4 }}
  selector:
    matchLabels:
      {{- include "unlocker.selector" (list .root .component) | nindent 6 }}
  template:
    {{- include "unlocker.pod" . | nindent 4 }}
{{- end }}

{{/* Probes of a component on the port of that name: (list values port readiness). Liveness never asks etcd; readiness is the
first list of the locks: while etcd is away, the dashboard shows what it saw last. */}}
{{- define "unlocker.probes" -}}
{{- $c := index . 0 -}}
livenessProbe:
  httpGet: {path: /livez, port: {{ index . 1 }}}
  {{- with $c.livenessProbe }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
readinessProbe:
  httpGet: {path: {{ index . 2 | quote }}, port: {{ index . 1 }}}
  {{- with $c.readinessProbe }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Budget of a component for maintenance: (dict of root, component, values). */}}
{{- define "unlocker.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "unlocker.componentName" (list .root .component) }}
  namespace: {{ .root.Release.Namespace }}
  {{- include "unlocker.meta" (list .root .component dict dict) | nindent 2 }}
spec:
  maxUnavailable: {{ .values.podDisruptionBudget.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow # one that does not work is in nobody's way
  selector:
    matchLabels:
      {{- include "unlocker.selector" (list .root .component) | nindent 6 }}
{{- end }}
