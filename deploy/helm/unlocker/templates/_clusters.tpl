{{/* The file of --clusters. The files that it names are in a directory beside it, one for each cluster. */}}
{{- define "unlocker.clustersFile" -}}
{{- $all := list -}}
{{- range .Values.mutexdash.clusters -}}
{{- $entry := pick . "name" "label" "colour" "endpoints" "prefix" "user" "links" -}}
{{- with get . "serverName" }}{{ $_ := set $entry "server-name" . }}{{ end -}}
{{- if or (dig "ca" "secret" "" .) (dig "ca" "configMap" "" .) }}{{ $_ := set $entry "cacert" (printf "%s/ca.crt" .name) }}{{ end -}}
{{- if dig "clientCert" "secret" "" . }}
{{- $_ := set $entry "cert" (printf "%s/tls.crt" .name) -}}
{{- $_ := set $entry "key" (printf "%s/tls.key" .name) -}}
{{- end -}}
{{- if dig "password" "secret" "" . }}{{ $_ := set $entry "password-file" (printf "%s/password" .name) }}{{ end -}}
{{- $all = append $all $entry -}}
{{- end -}}
{{- dict "clusters" $all | toYaml -}}
{{- end }}

{{/* That file and those that it names. */}}
{{- define "unlocker.clustersVolume" -}}
- name: clusters
  projected:
    defaultMode: 0440
    sources:
      - configMap: {name: {{ include "unlocker.componentName" (list . "mutexdash") }}-clusters}
      {{- range $c := .Values.mutexdash.clusters }}
      {{- with dig "ca" "secret" "" $c }}
      - secret:
          name: {{ . }}
          items: [{key: {{ dig "ca" "key" "ca.crt" $c }}, path: {{ $c.name }}/ca.crt}]
      {{- end }}
      {{- with dig "ca" "configMap" "" $c }}
      - configMap:
          name: {{ . }}
          items: [{key: {{ dig "ca" "key" "ca.crt" $c }}, path: {{ $c.name }}/ca.crt}]
      {{- end }}
      {{- with dig "clientCert" "secret" "" $c }}
      - secret:
          name: {{ . }}
          items:
            - {key: {{ dig "clientCert" "certKey" "tls.crt" $c }}, path: {{ $c.name }}/tls.crt}
            - {key: {{ dig "clientCert" "keyKey" "tls.key" $c }}, path: {{ $c.name }}/tls.key}
      {{- end }}
      {{- with dig "password" "secret" "" $c }}
      - secret:
          name: {{ . }}
          items: [{key: {{ dig "password" "key" "password" $c }}, path: {{ $c.name }}/password}]
      {{- end }}
      {{- end }}
{{- end }}
