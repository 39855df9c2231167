{{/* The flags of mutexdash. */}}
{{- define "unlocker.mutexdashFlags" -}}
{{- $c := .Values.mutexdash -}}
{{- include "unlocker.etcdFlags" (list . $c.etcd) }}
{{- include "unlocker.flag" (list "etcd-locks" .Values.etcdLocks.prefixes) }}
{{- include "unlocker.flag" (list "web.listen-address" ":8080") }}
{{- include "unlocker.flag" (list "web.ops-address" ":10981") }}
{{- include "unlocker.flag" (list "web.external-url" (include "unlocker.dashboardURL" .)) }}
{{- include "unlocker.flag" (list "web.allowed-hosts" (include "unlocker.dashboardHosts" .)) }}
{{- include "unlocker.flags" (list "web." (pick $c "routePrefix" "environment" "minRefresh" "hsts" "hideBacktraces" "alertmanagerURL")) }}
{{- include "unlocker.flags" (list "web.enable-" (pick $c "forceUnlock" "askAndExtend" "acknowledge")) }}
{{- range $name, $url := $c.links }}
{{- include "unlocker.flag" (list "web.link" (printf "%s=%s" $name $url)) }}
{{- end }}
{{- range $prefix, $url := $c.sourceLinks }}
{{- include "unlocker.flag" (list "web.source-link" (printf "%s=%s" $prefix $url)) }}
{{- end }}
{{- include "unlocker.flag" (list "web.identity" $c.identity.source) }}
{{- if eq $c.identity.source "header" }}
{{- include "unlocker.flag" (list "web.identity.header" $c.identity.header) }}
{{- include "unlocker.flag" (list "web.identity.groups-header" $c.identity.groupsHeader) }}
{{- include "unlocker.flag" (list "web.trusted-proxies" (join "," $c.identity.trustedProxies)) }}
{{- end }}
{{- if $c.permissions }}
{{- include "unlocker.flag" (list "web.permissions-file" "/etc/unlocker/permissions/permissions.yaml") }}
{{- end }}
{{- include "unlocker.daemonFlags" (list . $c) }}
{{- end }}

{{/* The names under which mutexdash answers: those of its Service, of what is in front of it, and others that the values name. */}}
{{- define "unlocker.dashboardHosts" -}}
{{- $c := .Values.mutexdash -}}
{{- $service := include "unlocker.componentName" (list . "mutexdash") -}}
{{- $inside := printf "%s.%s" $service .Release.Namespace -}}
{{- $names := list $service $inside (printf "%s.svc" $inside) (printf "%s.svc.%s" $inside (default "cluster.local" .Values.clusterDomain)) -}}
{{- if $c.ingress.enabled }}{{- $names = concat $names (list $c.ingress.host) (default list $c.ingress.hosts) }}{{- end }}
{{- if $c.httpRoute.enabled }}{{- $names = concat $names $c.httpRoute.hostnames }}{{- end }}
{{- $exact := list -}}
{{- range concat $names $c.allowedHosts }}
{{- if not (hasPrefix "*" .) }}{{- $exact = append $exact . }}{{- end }}
{{- end }}
{{- join "," (uniq $exact) -}}
{{- end }}

{{/* The container of mutexdash, as in a list. */}}
{{- define "unlocker.mutexdashContainer" -}}
name: mutexdash
image: {{ include "unlocker.image" (list . .Values.image) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
command: [/usr/bin/mutexdash]
args:
  {{- include "unlocker.args" (list "mutexdash" .) | nindent 2 }}
ports:
  - {name: pages, containerPort: 8080}
  - {name: ops, containerPort: 10981}
{{ include "unlocker.probes" (list .Values.mutexdash "ops" "/readyz?exclude=etcd") }}
{{- end }}

{{/* What the Service of the pages leads to speaks: a proxy before mutexdash has no TLS of ours. */}}
{{- define "unlocker.pagesScheme" -}}
{{- $c := .Values.mutexdash -}}
{{- ternary "https" "http" (and $c.webConfig.tls (eq (default "pages" $c.service.targetPort) "pages")) -}}
{{- end }}
