{{/* A flag as an argument, or nothing if its value is empty: (list "log.level" .Values.log.level). Switches are left out when false. A list repeats it. */}}
{{- define "unlocker.flag" -}}
{{- $value := index . 1 -}}
{{- if kindIs "bool" $value }}
{{- if $value }}
- --{{ index . 0 }}
{{- end }}
{{- else if kindIs "slice" $value }}
{{- range $value }}
{{- include "unlocker.flag" (list (index $ 0) .) }}
{{- end }}
{{- else if kindIs "float64" $value }}
- --{{ index . 0 }}={{ int64 $value }}
{{- else if not (or (kindIs "invalid" $value) (eq (toString $value) "")) }}
- {{ printf "--%s=%v" (index . 0) $value | quote }}
{{- end }}
{{- end }}

{{/* The flags that are named as their values: (list "log." .Values.log) has --log.level for the value level. */}}
{{- define "unlocker.flags" -}}
{{- range $name, $value := index . 1 }}
{{- include "unlocker.flag" (list (print (index $ 0) (kebabcase $name)) $value) }}
{{- end }}
{{- end }}

{{/* The arguments of a component: its flags, and extraArgs, which say what no value says: (list "unlocker" .). */}}
{{- define "unlocker.args" -}}
{{- $name := index . 0 -}}
{{- $extra := (index (index . 1).Values $name).extraArgs -}}
{{- $flags := include (printf "unlocker.%sFlags" $name) (index . 1) | trim -}}
{{- range $extra -}}
{{- $flag := regexFind "^--[^=]+" . -}}
{{- if or (contains (printf "%s=" $flag) $flags) (regexMatch "^--(kubernetes[.]pods|sweep[.]dry-run|etcd[.]insecure-skip-tls-verify|web[.](enable-.+|hide-backtraces))$" $flag) -}}
{{- fail (printf "%s.extraArgs has %s, which the chart decides: use the value for it, or leave it out" $name $flag) -}}
{{- end -}}
{{- end -}}
{{- $flags }}
{{- with $extra }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{/* The flags of the connection to etcd under the identity of a component: (list . identity). */}}
{{- define "unlocker.etcdFlags" -}}
{{- $etcd := (index . 0).Values.etcd -}}
{{- $identity := index . 1 -}}
{{- include "unlocker.flag" (list "etcd.endpoints" (include "unlocker.endpoints" (index . 0))) }}
{{- if or $etcd.ca.secret $etcd.ca.configMap }}
{{- include "unlocker.flag" (list "etcd.cacert" "/etc/unlocker/etcd/ca.crt") }}
{{- end }}
{{- if $identity.clientCert.secret }}
{{- include "unlocker.flag" (list "etcd.cert" "/etc/unlocker/etcd/tls.crt") }}
{{- include "unlocker.flag" (list "etcd.key" "/etc/unlocker/etcd/tls.key") }}
{{- end }}
{{- include "unlocker.flag" (list "etcd.user" $identity.user) }}
{{- if $identity.password.secret }}
{{- include "unlocker.flag" (list "etcd.password-file" "/etc/unlocker/etcd/password") }}
{{- end }}
{{- include "unlocker.flag" (list "etcd.server-name" $etcd.serverName) }}
{{- include "unlocker.flag" (list "etcd.insecure-skip-tls-verify" $etcd.insecureSkipTLSVerify) }}
{{- include "unlocker.flag" (list "etcd.request-timeout" $etcd.requestTimeout) }}
{{- include "unlocker.flag" (list "locks.prefix" (index . 0).Values.locks.prefix) }}
{{- end }}

{{/* The other flags that both daemons have: (list . component). */}}
{{- define "unlocker.daemonFlags" -}}
{{- $c := index . 1 -}}
{{- if $c.webConfig.secret }}
{{- include "unlocker.flag" (list "web.config.file" (printf "/etc/unlocker/web/%s" $c.webConfig.key)) }}
{{- end }}
{{- include "unlocker.flag" (list "web.shutdown-delay" (printf "%ds" (int $c.shutdown.delaySeconds))) }}
{{- include "unlocker.flag" (list "web.shutdown-timeout" (printf "%ds" (int $c.shutdown.timeoutSeconds))) }}
{{- include "unlocker.flag" (list "web.enable-pprof" $c.enablePprof) }}
{{- include "unlocker.flags" (list "log." (index . 0).Values.log) }}
{{- end }}
