{{/* The name of the chart in names of objects. */}}
{{- define "unlocker.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* The name of everything in this release: the release, plus the chart unless the release contains it. Short enough for suffixes. */}}
{{- define "unlocker.fullname" -}}
{{- $name := include "unlocker.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* The name of a component's objects: (list . "mutexdash"). The unlocker has the name of the release. */}}
{{- define "unlocker.componentName" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- include "unlocker.fullname" $root -}}{{ if ne $component "unlocker" }}-{{ $component }}{{ end -}}
{{- end }}

{{/* What selects the pods of a component, now and in all later versions: (list . "mutexdash"). */}}
{{- define "unlocker.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "unlocker.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Labels of its pods: (list . "mutexdash" more). Without the version, so that an upgrade that changes nothing else restarts no pod. */}}
{{- define "unlocker.podLabels" -}}
{{- $root := index . 0 -}}
{{- merge (fromYaml (include "unlocker.selector" .)) (default (dict) (index . 2)) (default (dict) $root.Values.commonLabels) | toYaml -}}
{{- end }}

{{/* Labels and annotations of an object of a component: (list . "mutexdash" labels annotations). */}}
{{- define "unlocker.meta" -}}
{{- $root := index . 0 -}}
{{- $own := fromYaml (include "unlocker.selector" .) -}}
{{- $_ := set $own "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/part-of" "unlocker" -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
labels:
  {{- merge $own (default (dict) (index . 2)) (default (dict) $root.Values.commonLabels) | toYaml | nindent 2 }}
{{- with merge (dict) (default (dict) (index . 3)) (default (dict) $root.Values.commonAnnotations) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What a Service says about the families of its addresses: (values of the Service). */}}
{{- define "unlocker.families" -}}
{{- with .ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .ipFamilies }}
ipFamilies: {{ toJson . }}
{{- end }}
{{- end }}

{{- define "unlocker.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "unlocker.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{/* The service account of the unlocker: one of its own, where it has rights. */}}
{{- define "unlocker.podsAccountName" -}}
{{- $name := include "unlocker.serviceAccountName" . -}}
{{- if and .Values.kubernetes.pods .Values.serviceAccount.create -}}
{{- printf "%s-pods" $name -}}
{{- else -}}
{{- $name -}}
{{- end -}}
{{- end }}

{{/* An image by digest, or else by tag: (list . image). */}}
{{- define "unlocker.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $repository := $image.repository -}}
{{- with $root.Values.global.imageRegistry -}}
{{- $parts := splitList "/" $repository -}}
{{- if and (gt (len $parts) 1) (regexMatch "[.:]|^localhost$" (first $parts)) -}}{{/* as docker distinguishes a registry from a name */}}
{{- $parts = rest $parts -}}
{{- end -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) (join "/" $parts) -}}
{{- end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default $root.Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end }}

{{/* Where etcd's members are: the given ones, or that of the trial. */}}
{{- define "unlocker.endpoints" -}}
{{- if .Values.etcd.deploy -}}
{{- printf "%s:2379" (include "unlocker.componentName" (list . "etcd")) -}}
{{- else -}}
{{- join "," .Values.etcd.endpoints -}}
{{- end -}}
{{- end }}

{{/* The URL of the pages: the given one, or that of the Ingress or HTTPRoute. */}}
{{- define "unlocker.dashboardURL" -}}
{{- $dash := .Values.mutexdash -}}
{{- if $dash.externalURL -}}
{{- $dash.externalURL -}}
{{- else if and $dash.enabled $dash.ingress.enabled -}}
{{- printf "%s://%s%s" (ternary "https" "http" (ne $dash.ingress.tlsSecret "")) $dash.ingress.host $dash.ingress.path -}}
{{- else if and $dash.enabled $dash.httpRoute.enabled -}}
{{- printf "https://%s%s" (first $dash.httpRoute.hostnames) $dash.httpRoute.path -}}
{{- end -}}
{{- end }}
