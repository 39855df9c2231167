{{/* The flags of unlocker witness. */}}
{{- define "unlocker.witnessFlags" -}}
{{- $c := .Values.witness -}}
{{- include "unlocker.etcdFlags" (list . $c.etcd) }}
{{- include "unlocker.flag" (list "web.listen-address" ":10983") }}
{{- include "unlocker.flag" (list "web.shutdown-delay" (printf "%ds" (int $c.shutdown.delaySeconds))) }}
{{- include "unlocker.flag" (list "web.shutdown-timeout" (printf "%ds" (int $c.shutdown.timeoutSeconds))) }}
{{- include "unlocker.flag" (list "web.enable-pprof" $c.enablePprof) }}
{{- if $c.state.hostPath }}
{{- include "unlocker.flag" (list "witness.state-dir" "/var/lib/unlocker-witness") }}
{{- include "unlocker.flag" (list "witness.hostname" "$(NODE_NAME)") }}
{{- end }}
{{- include "unlocker.flags" (list "log." .Values.log) }}
{{- end }}

{{/* The container of the witness, as in a list. */}}
{{- define "unlocker.witnessContainer" -}}
name: witness
image: {{ include "unlocker.image" (list . .Values.image) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command: [/usr/bin/unlocker]
args:
  - witness
  {{- include "unlocker.args" (list "witness" .) | nindent 2 }}
ports:
  - {name: metrics, containerPort: 10983}
{{ include "unlocker.probes" (list .Values.witness "metrics" "/readyz") }}
{{- end }}

{{/* What a witness that remembers the boots of its node needs to know: the pod's host name is not that of the node. */}}
{{- define "unlocker.witnessEnv" -}}
{{- if .Values.witness.state.hostPath }}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
{{- end }}
{{- end }}
