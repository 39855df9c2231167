package chart

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// named is a dashboard whose callers have names.
const named = "mutexdash: {webConfig: {secret: a}, identity: {source: basic}, "

// Each row is a mistake on top of values that work, and the error for it: what a template or a pattern of the schema
// refuses. Types, ranges and words are in the schema alone.
var refused = []struct{ values, says string }{
	{"polcy: auto-unlock", "additional properties 'polcy' not allowed"},
	{"policy: ''", "policy is missing: choose alert-only"},
	{"policy: null", "policy"},
	{"etcd: {endpoints: []}", "etcd.endpoints is missing"},
	{"etcd: {endpoints: [etcd]}", "at '/etcd/endpoints/0'"},
	{"etcd: {endpoints: ['ftp://etcd:2379']}", "at '/etcd/endpoints/0'"},
	{"etcd: {endpoints: ['etcd:2379,other:2379']}", "at '/etcd/endpoints/0'"},
	{"etcd: {endpoints: [etcd:2379, etcd:2379]}", "at '/etcd/endpoints'"},
	{"etcd: {deploy: true}", "etcd.endpoints names your etcd, and etcd.deploy runs another"},
	{"etcd: {requestTimeout: 5 seconds}", "at '/etcd/requestTimeout'"},
	{"etcd: {ca: {secret: a, configMap: b}}", "etcd.ca.secret and etcd.ca.configMap both name the authority"},
	{"etcd: {endpoints: ['http://etcd:2379'], ca: {secret: a}}", "is without TLS, and certificates are given"},
	{"etcd: {endpoints: ['http://etcd:2379']}\nmutexdash: {etcd: {clientCert: {secret: a}}}", "is without TLS"},
	{"etcd: {endpoints: ['http://etcd:2379'], insecureSkipTLSVerify: true}", "is without TLS"},
	{"etcd: {endpoints: ['https://a:2379', 'b:2379']}", "b:2379 differ in their scheme"},
	{"kubernetes: {pods: true}\nunlocker: {enabled: false}", "kubernetes.pods without unlocker.enabled"},
	{"kubernetes: {pods: true}\nserviceAccount: {create: false}", "name another in serviceAccount.name"},
	{"kubernetes: {namespaces: [shop]}", "kubernetes.namespaces says whose pods are watched"},
	{"kubernetes: {pods: true, namespaces: [No]}", "at '/kubernetes/namespaces/0'"},
	{"sweep: {abandoned: unlock}\npolicy: alert-only", "sweep.abandoned=unlock removes locks"},
	{"sweep: {dryRun: true}\npolicy: alert-only", "sweep.dryRun says what auto-unlock would remove"},
	{"sweep: {minWarning: -30s}", "at '/sweep/minWarning'"},
	{"image: {digest: sha256:abc}", "at '/image/digest'"},
	{"unlocker: {enabled: false}\nmutexdash: {enabled: false}", "nothing is enabled"},
	{"unlocker: {replicas: 0}", "unlocker.replicas is 0: "},
	{"mutexdash: {replicas: 0}", "mutexdash.replicas is 0: "},
	{"global: {imageRegistry: 'registry.example/path with space'}", "at '/global/imageRegistry'"},
	{"unlocker: {etcd: {user: root}}", "unlocker.etcd.user is given without unlocker.etcd.password.secret"},
	{"mutexdash: {etcd: {password: {secret: a}}}", "is given without mutexdash.etcd.user"},
	{"etcd: {deploy: true, endpoints: []}\nunlocker: {etcd: {clientCert: {secret: a}}}", "etcd.deploy knows no users"},
	{"unlocker: {webConfig: {tls: true}}", "need unlocker.webConfig.secret"},
	{"unlocker: {extraArgs: [policy=auto-unlock]}", "at '/unlocker/extraArgs/0'"},
	{"unlocker: {extraArgs: [--policy=alert-only]}", "unlocker.extraArgs has --policy, which the chart decides"},
	{"unlocker: {extraArgs: [--sweep.dry-run]}", "unlocker.extraArgs has --sweep.dry-run, which the chart decides"},
	{"mutexdash: {extraArgs: ['--web.listen-address=:80']}", "mutexdash.extraArgs has --web.listen-address, which"},
	{"unlocker: {extraVolumeMounts: [{name: a, mountPath: /a, subPath: b}]}", "at '/unlocker/extraVolumeMounts/0'"},
	{"mutexdash: {externalURL: locks.example}", "at '/mutexdash/externalURL'"},
	{"mutexdash: {links: {logs: 'http://logs.example'}}", "at '/mutexdash/links/logs'"},
	{"mutexdash: {identity: {source: basic}}", "mutexdash.identity.source basic needs mutexdash.webConfig.secret"},
	{"mutexdash: {identity: {source: mtls}}", "mutexdash.identity.source mtls needs mutexdash.webConfig.secret"},
	{"mutexdash: {identity: {source: header}}", "needs mutexdash.identity.trustedProxies"},
	{"mutexdash: {identity: {trustedProxies: [10.0.0.1]}}", "its source is not header"},
	{"mutexdash: {identity: {source: header, trustedProxies: [proxy.example]}}", "/identity/trustedProxies/0'"},
	{"mutexdash: {forceUnlock: true}", "mutexdash.forceUnlock needs callers with names"},
	{"mutexdash: {askAndExtend: true}", "mutexdash.askAndExtend needs callers with names"},
	{"mutexdash: {acknowledge: true}", "mutexdash.acknowledge needs callers with names"},
	{named + "forceUnlock: true}", "gives unlock to nobody"},
	{named + "forceUnlock: true, permissions: {everyone: [view], users: {ann: [audit]}}}", "gives unlock to nobody"},
	{named + "askAndExtend: true, permissions: {everyone: [view]}}", "gives ask or extend to nobody"},
	{named + "acknowledge: true}", "mutexdash.permissions gives acknowledge to nobody"},
	{"mutexdash: {permissions: {everyone: [view]}}", "mutexdash.permissions needs callers with names"},
	{named + "permissions: {everyone: [view], groups: {ops: [unlock]}}}", "mutexdash.permissions names groups"},
	{named + "permissions: {everyone: [view], groups: {'cn=ops,ou=groups': [unlock]}}}",
		"invalid propertyName 'cn=ops,"},
	{named + "permissions: {users: {ann: [audit]}}}", "gives audit without view, which all others need"},
	{"mutexdash: {permissions: {everyone: [view owner:billing]}}", "at '/mutexdash/permissions/everyone/0'"},
	{"mutexdash: {permissions: {everyone: ['unlock owner:']}}", "at '/mutexdash/permissions/everyone/0'"},
	{"mutexdash: {hsts: 24h}", "mutexdash.webConfig.tls is off"},
	{"mutexdash: {sourceLinks: {/src/: 'https://git.example/'}}", "at '/mutexdash/sourceLinks/~1src~1'"},
	{"mutexdash: {ingress: {enabled: true}}", "mutexdash.ingress needs a host"},
	{"mutexdash: {ingress: {enabled: true, host: a.example, path: locks}}", "at '/mutexdash/ingress/path'"},
	{"mutexdash: {externalURL: 'https://a.example', ingress: {enabled: true, host: a.example, path: /locks}}",
		"make them the same"},
	{"mutexdash: {httpRoute: {enabled: true, hostnames: [a.example]}}", "needs parentRefs and hostnames"},
	{"monitoring: {serviceMonitor: {interval: often}}", "at '/monitoring/serviceMonitor/interval'"},
	{"monitoring: {prometheusRule: {enabled: true, disabled: [UnlockerDawn]}}", "there is no alert UnlockerDawn"},
	{"monitoring: {prometheusRule: {enabled: true, for: {UnlockerDown: soon}}}", "/prometheusRule/for/UnlockerDown'"},
	{"monitoring: {prometheusRule: {enabled: true}}\nunlocker: {enabled: false}", "reporting that no unlocker runs"},
	{"commonLabels: {app.kubernetes.io/name: locks}", "commonLabels has the label app.kubernetes.io/name"},
	{"commonLabels: {team: the platform}", "at '/commonLabels/team'"},
	{"unlocker: {podLabels: {helm.sh/chart: mine}}", "unlocker.podLabels has the label helm.sh/chart"},
	{"extraObjects: [{metadata: {name: a}}]", "at '/extraObjects/0'"},
	{"dnsPolicy: None", "dnsPolicy None leaves the pods without name servers"},
	{"dnsConfig: {nameservers: [dns.example]}", "at '/dnsConfig/nameservers/0'"},
	{"hostAliases: [{ip: 10.0.0.1}]", "at '/hostAliases/0': missing property 'hostnames'"},
	{"unlocker: {strategy: {rollingUpdate: {maxSurge: 0}}}", "unlocker.strategy.rollingUpdate lets no new pod come"},
	{"mutexdash: {strategy: {rollingUpdate: {maxSurge: 0%}}}", "mutexdash.strategy.rollingUpdate lets no new pod come"},
	{named + "permissions: {everyone: ['view cluster:a']}}", "at '/mutexdash/permissions/everyone/0'"},
	{"mutexdash: {service: {targetPort: proxy}}", "mutexdash.service.targetPort is proxy, and no container"},
	{"mutexdash: {service: {nodePort: 30080}}", "mutexdash.service.nodePort and externalTrafficPolicy are for"},
	{"mutexdash: {service: {externalTrafficPolicy: Local}}", "mutexdash.service.nodePort and external"},
	{"mutexdash: {service: {type: NodePort, loadBalancerSourceRanges: [10.0.0.0/8]}}", "its type is NodePort"},
	{"mutexdash: {service: {type: LoadBalancer, loadBalancerSourceRanges: [10.0.0.0]}}",
		"at '/mutexdash/service/loadBalancerSourceRanges/0'"},
	{"witness: {service: {ipFamilies: [IPv4, IPv6], ipFamilyPolicy: SingleStack}}", "SingleStack allows one"},
	{"monitoring: {serviceMonitor: {metricRelabelings: [{action: delete}]}}",
		"/serviceMonitor/metricRelabelings/0/action'"},
	{"serviceAccount: {name: Locks}", "at '/serviceAccount/name'"},
}

func TestBadValuesAreRefusedWithASentence(t *testing.T) {
	c := load(t)
	var said strings.Builder
	for _, row := range refused {
		_, err := render(t, c, working(t, row.values))
		if err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%q: %v\nwant something about %q", row.values, err, row.says)
		}
		fmt.Fprintln(&said, err)
	}
	// Each error message of the chart is provoked by some row.
	sentence := regexp.MustCompile(`fail (?:\(printf )?"([^"]+)"`)
	found := 0
	for _, template := range c.Templates {
		for _, match := range sentence.FindAllStringSubmatch(string(template.Data), -1) {
			found++
			// What stands between the parts that are filled in.
			pattern := regexp.MustCompile(strings.ReplaceAll(regexp.QuoteMeta(match[1]), "%s", ".*"))
			if !pattern.MatchString(said.String()) {
				t.Errorf("no case provokes %q", match[1])
			}
		}
	}
	if found < 15 {
		t.Errorf("only %d sentences are found", found)
	}
}

// A switch says nothing when it is off, and yet is off: extraArgs do not turn it on.
func TestExtraArgsDoNotEnableSwitches(t *testing.T) {
	c := load(t)
	found := 0
	flags := regexp.MustCompile("(?m)^\\| `(--[a-z.-]+)`")
	for _, match := range flags.FindAllStringSubmatch(page(t, "docs/flags.md"), -1) {
		found++
		for _, component := range []string{"unlocker", "mutexdash"} {
			_, err := render(t, c, working(t, component+": {extraArgs: ["+match[1]+"]}"))
			if err == nil || !strings.Contains(err.Error(), "extraArgs has "+match[1]+", which the chart decides") {
				t.Errorf("%s.extraArgs: %s: %v", component, match[1], err)
			}
		}
	}
	if found < 8 {
		t.Errorf("only %d switches are found", found)
	}
}

func values(t testing.TB, text string) (v map[string]any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return v
}

// working are values that work, with more on top.
func working(t testing.TB, more string) map[string]any {
	t.Helper()
	return over(values(t, "policy: auto-unlock\netcd: {endpoints: [etcd:2379]}"), values(t, more))
}

// over lays values over others, as a second file on the command line does.
func over(base, extra map[string]any) map[string]any {
	for name, value := range extra {
		if inner, ok := value.(map[string]any); ok {
			if below, ok := base[name].(map[string]any); ok {
				base[name] = over(below, inner)
				continue
			}
		}
		base[name] = value
	}
	return base
}
