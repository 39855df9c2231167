{{/* The flags of unlocker. */}}
{{- define "unlocker.unlockerFlags" -}}
{{- $c := .Values.unlocker -}}
{{- include "unlocker.flag" (list "policy" .Values.policy) }}
{{- include "unlocker.etcdFlags" (list . $c.etcd) }}
{{- include "unlocker.flag" (list "sweep.dry-run" .Values.sweep.dryRun) }}
{{- range .Values.sweep.exclude }}
{{- include "unlocker.flag" (list "sweep.exclude" .) }}
{{- end }}
{{- include "unlocker.flag" (list "sweep.clock-skew" .Values.sweep.clockSkew) }}
{{- include "unlocker.flag" (list "sweep.min-warning" .Values.sweep.minWarning) }}
{{- include "unlocker.flag" (list "sweep.default-alert-after" .Values.sweep.defaultAlertAfter) }}
{{- include "unlocker.flag" (list "sweep.default-auto-unlock-after" .Values.sweep.defaultAutoUnlockAfter) }}
{{- include "unlocker.flag" (list "sweep.abandoned" .Values.sweep.abandoned) }}
{{- include "unlocker.flag" (list "sweep.abandoned-grace" .Values.sweep.abandonedGrace) }}
{{- include "unlocker.flag" (list "sweep.lock-delay" .Values.sweep.lockDelay) }}
{{- include "unlocker.flag" (list "metrics.lock-series" $c.metrics.lockSeries) }}
{{- include "unlocker.flag" (list "metrics.lock-series-limit" $c.metrics.lockSeriesLimit) }}
{{- include "unlocker.flag" (list "metrics.label-attribute" (join "," $c.metrics.labelAttributes)) }}
{{- include "unlocker.flag" (list "history.retention" $c.history.retention) }}
{{- include "unlocker.flag" (list "history.max" $c.history.max) }}
{{- with .Values.kubernetes }}
{{- include "unlocker.flag" (list "kubernetes.pods" .pods) }}
{{- if .pods }}
{{- include "unlocker.flag" (list "kubernetes.namespaces" (join "," .namespaces)) }}
{{- end }}
{{- end }}
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
