{{/* The flags of unlocker. */}}
{{- define "unlocker.unlockerFlags" -}}
{{- $c := .Values.unlocker -}}
{{- include "unlocker.flag" (list "policy" .Values.policy) }}
{{- include "unlocker.etcdFlags" (list . $c.etcd) }}
{{- include "unlocker.flag" (list "etcd-locks" .Values.etcdLocks.prefixes) }}
{{- include "unlocker.flag" (list "etcd-locks.alert-after" .Values.etcdLocks.alertAfter) }}
{{- include "unlocker.flags" (list "sweep." .Values.sweep) }}
{{- include "unlocker.flags" (list "metrics." (omit $c.metrics "labelAttributes")) }}
{{- include "unlocker.flag" (list "metrics.label-attribute" (join "," $c.metrics.labelAttributes)) }}
{{- include "unlocker.flags" (list "history." $c.history) }}
{{- include "unlocker.flags" (list "kubernetes." (omit .Values.kubernetes "rbac")) }}
{{- include "unlocker.flag" (list "web.listen-address" ":10980") }}
{{- if $c.webConfig.secret }}
{{- include "unlocker.flag" (list "web.probe-address" ":10982") }}
{{- end }}
{{- include "unlocker.flag" (list "dashboard.url" (default (include "unlocker.dashboardURL" .) $c.dashboardURL)) }}
{{- include "unlocker.daemonFlags" (list . $c) }}
{{- end }}

{{/* The container of unlocker, as in a list. */}}
{{- define "unlocker.unlockerContainer" -}}
{{- $c := .Values.unlocker -}}
name: unlocker
image: {{ include "unlocker.image" (list . .Values.image) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command: [/usr/bin/unlocker]
args:
  {{- include "unlocker.args" (list "unlocker" .) | nindent 2 }}
ports:
  - {name: metrics, containerPort: 10980}
  {{- if $c.webConfig.secret }}
  - {name: probes, containerPort: 10982} # the other ports may require a password or certificate, which a kubelet does not have
  {{- end }}
{{ include "unlocker.probes" (list $c (ternary "probes" "metrics" (ne $c.webConfig.secret "")) "/readyz?exclude=etcd") }}
{{- end }}
