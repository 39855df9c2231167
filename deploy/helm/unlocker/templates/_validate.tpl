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
{{- if and $v.kubernetes.pods (not $v.unlocker.enabled) -}}
{{- fail "kubernetes.pods without unlocker.enabled: it is the unlocker that watches pods" -}}
{{- end -}}
{{- if and $v.kubernetes.pods (not $v.serviceAccount.create) (not $v.serviceAccount.name) -}}
{{- fail "kubernetes.pods would give the service account default, which other pods share, the right to see pods: name another in serviceAccount.name" -}}
{{- end -}}
{{- if and (not $v.kubernetes.pods) $v.kubernetes.namespaces -}}
{{- fail "kubernetes.namespaces says whose pods are watched, and kubernetes.pods is off" -}}
{{- end -}}
{{- if and (eq (default "" $v.dnsPolicy) "None") (not (get (default (dict) $v.dnsConfig) "nameservers")) -}}
{{- fail "dnsPolicy None leaves the pods without name servers: name some in dnsConfig.nameservers" -}}
{{- end -}}
{{- include "unlocker.validateLabels" (list "commonLabels" $v.commonLabels) -}}
{{- range $name := list "unlocker" "mutexdash" "witness" -}}
{{- $c := index $v $name -}}
{{- include "unlocker.validateLabels" (list (printf "%s.podLabels" $name) $c.podLabels) -}}
{{- $rolling := default (dict) (dig "strategy" "rollingUpdate" (dict) $c) -}}
{{- if and $rolling (has (toString $rolling.maxSurge) (list "0" "0%")) (has (toString $rolling.maxUnavailable) (list "0" "0%")) -}}
{{- fail (printf "%s.strategy.rollingUpdate lets no new pod come first and no old pod go first: maxSurge and maxUnavailable cannot both be 0" $name) -}}
{{- end -}}
{{- if and (eq (len (default list $c.service.ipFamilies)) 2) (eq (default "" $c.service.ipFamilyPolicy) "SingleStack") -}}
{{- fail (printf "%s.service.ipFamilies names two families, and ipFamilyPolicy SingleStack allows one" $name) -}}
{{- end -}}
{{- end -}}
{{- include "unlocker.validateEtcd" . -}}
{{- include "unlocker.validateService" $v.mutexdash -}}
{{- include "unlocker.validateIdentity" $v.mutexdash -}}
{{- include "unlocker.validateRoutes" $v.mutexdash -}}
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
{{- if and .hsts (not .webConfig.tls) -}}
{{- fail "mutexdash.hsts is for pages by TLS, and mutexdash.webConfig.tls is off" -}}
{{- end -}}
{{- if and .permissions (eq $source "none") -}}
{{- fail "mutexdash.permissions needs callers with names: set mutexdash.identity.source to basic, mtls or header" -}}
{{- end -}}
{{- if and (get .permissions "groups") (not (and (eq $source "header") .identity.groupsHeader)) -}}
{{- fail "mutexdash.permissions names groups, and only mutexdash.identity.source header with a groupsHeader knows any" -}}
{{- end -}}
{{- range $list := fromJsonArray (include "unlocker.grants" .permissions) -}}
{{- if not (regexMatch "(^|,)view(,| |$)" (join "," (concat $list (default list (get $.permissions "everyone"))))) -}}
{{- fail (printf "mutexdash.permissions gives %s without view, which all others need" (first $list)) -}}
{{- end -}}
{{- end -}}
{{- $needs := dict "forceUnlock" (list "unlock") "askAndExtend" (list "ask" "extend") "acknowledge" (list "acknowledge") -}}
{{- range $switch := list "forceUnlock" "askAndExtend" "acknowledge" -}}
{{- if index $ $switch -}}
{{- if eq $source "none" -}}
{{- fail (printf "mutexdash.%s needs callers with names: set mutexdash.identity.source to basic, mtls or header" $switch) -}}
{{- end -}}
{{- $given := list -}}
{{- range fromJsonArray (include "unlocker.grants" $.permissions) -}}
{{- range . }}{{ $given = append $given (first (splitList " " .)) }}{{ end -}}
{{- end -}}
{{- $may := list -}}
{{- range index $needs $switch }}{{ if has . $given }}{{ $may = append $may . }}{{ end }}{{ end -}}
{{- if not $may -}}
{{- fail (printf "mutexdash.%s is on, and mutexdash.permissions gives %s to nobody" $switch (join " or " (index $needs $switch))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* What the permissions give, one list for everyone and for each user and group, as JSON: (permissions). */}}
{{- define "unlocker.grants" -}}
{{- $all := list -}}
{{- with get . "everyone" }}{{ $all = append $all . }}{{ end -}}
{{- range $who := list (default (dict) (get . "users")) (default (dict) (get . "groups")) -}}
{{- range $what := $who }}{{ with $what }}{{ $all = append $all . }}{{ end }}{{ end -}}
{{- end -}}
{{- toJson $all -}}
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

{{/* Labels by which the chart finds its own objects are not to be given: (list "commonLabels" labels). */}}
{{- define "unlocker.validateLabels" -}}
{{- $where := index . 0 -}}
{{- range $label := keys (default (dict) (index . 1)) -}}
{{- if or (hasPrefix "app.kubernetes.io/" $label) (eq $label "helm.sh/chart") -}}
{{- fail (printf "%s has the label %s, which the chart sets itself: pods and objects are found by it" $where $label) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "unlocker.validateService" -}}
{{- $s := .service -}}
{{- if and (ne $s.type "LoadBalancer") (or $s.loadBalancerClass $s.loadBalancerSourceRanges) -}}
{{- fail (printf "mutexdash.service says which load balancer it gets, and its type is %s" $s.type) -}}
{{- end -}}
{{- if and (eq $s.type "ClusterIP") (or $s.nodePort $s.externalTrafficPolicy) -}}
{{- fail "mutexdash.service.nodePort and externalTrafficPolicy are for the types NodePort and LoadBalancer, and its type is ClusterIP" -}}
{{- end -}}
{{- $target := default "pages" $s.targetPort -}}
{{- $ports := list "pages" -}}
{{- range default list .extraContainers -}}
{{- range default list (get . "ports") }}{{ $ports = append $ports (get . "name") }}{{ end -}}
{{- end -}}
{{- if not (has $target $ports) -}}
{{- fail (printf "mutexdash.service.targetPort is %s, and no container of mutexdash.extraContainers has a port of that name" $target) -}}
{{- end -}}
{{- end }}
