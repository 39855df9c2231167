{{/* Contradictions between values, each as one sentence. values.schema.json checks single values. */}}
{{- define "unlocker.validate" -}}
{{- $v := .Values -}}
{{- if not (or $v.unlocker.enabled $v.mutexdash.enabled $v.witness.enabled) -}}
{{- fail "nothing is enabled: unlocker.enabled, mutexdash.enabled or witness.enabled" -}}
{{- end -}}
{{- range $name := list "unlocker" "mutexdash" -}}
{{- $c := index $v $name -}}
{{- if and $c.enabled (eq (int $c.replicas) 0) -}}
{{- fail (printf "%s.replicas is 0: nothing of it would run, and nothing would say so; set %s.enabled to false, or stop it for a while with kubectl scale" $name $name) -}}
{{- end -}}
{{- end -}}
{{- if and $v.unlocker.enabled (not $v.policy) -}}
{{- fail "policy is missing: choose alert-only, which removes nothing, or auto-unlock" -}}
{{- end -}}
{{- if not (or $v.etcd.endpoints $v.etcd.deploy) -}}
{{- fail "etcd.endpoints is missing: name the members of your etcd, or try the chart with etcd.deploy=true" -}}
{{- end -}}
{{- if and $v.sweep.dryRun (ne $v.policy "auto-unlock") -}}
{{- fail "sweep.dryRun says what auto-unlock would remove, and policy is not auto-unlock: choose one of them" -}}
{{- end -}}
{{- if and (eq $v.sweep.abandoned "unlock") (eq $v.policy "alert-only") -}}
{{- fail "sweep.abandoned=unlock removes locks, and policy alert-only removes nothing: choose one of them" -}}
{{- end -}}
{{- with $v.unlocker.alertmanager -}}
{{- if and (not .urls) (or .resendDelay .labels .httpConfig.secret) -}}
{{- fail "unlocker.alertmanager says how to alert, and its urls are missing" -}}
{{- end -}}
{{- end -}}
{{- if and $v.kubernetes.pods (not $v.unlocker.enabled) -}}
{{- fail "kubernetes.pods without unlocker.enabled: it is the unlocker that watches pods" -}}
{{- end -}}
{{- if and $v.kubernetes.pods (not $v.serviceAccount.create) (not $v.serviceAccount.name) -}}
{{- fail "kubernetes.pods would give the service account default, which other pods share, the right to see pods: name another in serviceAccount.name" -}}
{{- end -}}
{{- if and (not $v.kubernetes.pods) $v.kubernetes.namespaces -}}
{{- fail "kubernetes.namespaces says whose pods are watched, and kubernetes.pods is off" -}}
{{- end -}}
{{- include "unlocker.validateEtcd" . -}}
{{- include "unlocker.validateIdentity" $v.mutexdash -}}
{{- include "unlocker.validateRoutes" $v.mutexdash -}}
{{- if and $v.monitoring.serviceMonitor.enabled $v.monitoring.podMonitor.enabled -}}
{{- fail "monitoring.serviceMonitor and monitoring.podMonitor would both have every pod scraped twice: enable one of them" -}}
{{- end -}}
{{- if and $v.monitoring.prometheusRule.enabled (not $v.unlocker.enabled) -}}
{{- fail "monitoring.prometheusRule without unlocker.enabled would keep reporting that no unlocker runs: install the rules with the unlocker" -}}
{{- end -}}
{{- end }}

{{- define "unlocker.validateEtcd" -}}
{{- $v := .Values -}}
{{- if and $v.etcd.deploy $v.etcd.endpoints -}}
{{- fail "etcd.endpoints names your etcd, and etcd.deploy runs another: choose one of them" -}}
{{- end -}}
{{- if and $v.etcd.ca.secret $v.etcd.ca.configMap -}}
{{- fail "etcd.ca.secret and etcd.ca.configMap both name the authority: choose one of them" -}}
{{- end -}}
{{- range $name := list "unlocker" "mutexdash" "witness" -}}
{{- $c := index $v $name -}}
{{- if and $c.etcd.password.secret (not $c.etcd.user) -}}
{{- fail (printf "%s.etcd.password.secret is given without %s.etcd.user" $name $name) -}}
{{- end -}}
{{- if and $c.etcd.user (not $c.etcd.password.secret) -}}
{{- fail (printf "%s.etcd.user is given without %s.etcd.password.secret" $name $name) -}}
{{- end -}}
{{- if and $v.etcd.deploy (or $c.etcd.clientCert.secret $c.etcd.user) -}}
{{- fail (printf "%s.etcd says who it is, and the etcd of etcd.deploy knows no users" $name) -}}
{{- end -}}
{{- if and (or (dig "webConfig" "tls" false $c) (dig "webConfig" "tlsSecret" "" $c)) (not (dig "webConfig" "secret" "" $c)) -}}
{{- fail (printf "%s.webConfig.tls and tlsSecret need %s.webConfig.secret: the file in it switches TLS on" $name $name) -}}
{{- end -}}
{{- end -}}
{{- $secure := or $v.etcd.ca.secret $v.etcd.ca.configMap $v.etcd.serverName $v.etcd.insecureSkipTLSVerify $v.unlocker.etcd.clientCert.secret $v.mutexdash.etcd.clientCert.secret $v.witness.etcd.clientCert.secret -}}
{{- range $v.etcd.endpoints -}}
{{- if and (hasPrefix "http://" .) $secure -}}
{{- fail (printf "the endpoint %s is without TLS, and certificates are given: say https://, or leave them out" .) -}}
{{- end -}}
{{- if ne (regexFind "^https?://" .) (regexFind "^https?://" (first $v.etcd.endpoints)) -}}
{{- fail (printf "the endpoints %s and %s differ in their scheme: give all of them the same" (first $v.etcd.endpoints) .) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "unlocker.validateIdentity" -}}
{{- $source := .identity.source -}}
{{- if and (has $source (list "basic" "mtls")) (not .webConfig.secret) -}}
{{- fail (printf "mutexdash.identity.source %s needs mutexdash.webConfig.secret, whose file says who may log in" $source) -}}
{{- end -}}
{{- if and (eq $source "header") (not .identity.trustedProxies) -}}
{{- fail "mutexdash.identity.source header needs mutexdash.identity.trustedProxies: anybody else could send that header" -}}
{{- end -}}
{{- if and (ne $source "header") (or .identity.header .identity.groupsHeader .identity.trustedProxies) -}}
{{- fail "mutexdash.identity has headers or proxies, and its source is not header" -}}
{{- end -}}
{{- if and .unlockWebhook.secret (not .forceUnlock) (not .askAndExtend) (not .acknowledge) -}}
{{- fail "mutexdash.unlockWebhook reports force unlocks, and mutexdash.forceUnlock is off" -}}
{{- end -}}
{{- if and .hsts (not .webConfig.tls) -}}
{{- fail "mutexdash.hsts is for pages by TLS, and mutexdash.webConfig.tls is off" -}}
{{- end -}}
{{- if and .askAndExtend (eq $source "none") -}}
{{- fail "mutexdash.askAndExtend needs callers with names: set mutexdash.identity.source to basic, mtls or header" -}}
{{- end -}}
{{- if and .acknowledge (eq $source "none") -}}
{{- fail "mutexdash.acknowledge needs callers with names: set mutexdash.identity.source to basic, mtls or header" -}}
{{- end -}}
{{- if .forceUnlock -}}
{{- if eq $source "none" -}}
{{- fail "mutexdash.forceUnlock needs callers with names: set mutexdash.identity.source to basic, mtls or header" -}}
{{- end -}}
{{- $may := list -}}
{{- range list (default (dict) (get .permissions "users")) (default (dict) (get .permissions "groups")) (dict "everyone" (get .permissions "everyone")) -}}
{{- range $who, $what := . -}}
{{- if has "unlock" (default list $what) }}{{ $may = append $may $who }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if not $may -}}
{{- fail "mutexdash.forceUnlock is on, and mutexdash.permissions gives unlock to nobody" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "unlocker.validateRoutes" -}}
{{- if .enabled -}}
{{- if and .ingress.enabled (not .ingress.host) -}}
{{- fail "mutexdash.ingress needs a host" -}}
{{- end -}}
{{- if and .httpRoute.enabled (not (and .httpRoute.parentRefs .httpRoute.hostnames)) -}}
{{- fail "mutexdash.httpRoute needs parentRefs and hostnames" -}}
{{- end -}}
{{- if and .externalURL (not .routePrefix) -}}
{{- $path := printf "%s/" (trimSuffix "/" (urlParse .externalURL).path) -}}
{{- range list .ingress .httpRoute -}}
{{- if and .enabled (ne $path (printf "%s/" (trimSuffix "/" .path))) -}}
{{- fail (printf "mutexdash.externalURL has the path %s, and what leads to the pages has %s: make them the same, or set mutexdash.routePrefix to the path that arrives" $path .path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
