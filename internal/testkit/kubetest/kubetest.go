// Package kubetest runs a real Kubernetes API server for tests and benchmarks, with pods in it. There is no kubelet:
// the caller reports what happens to a pod's containers, as a kubelet would.
package kubetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// AdminToken may do everything, and PlainToken nothing until a role binding says so.
const (
	AdminToken = "admin-token"
	PlainToken = "plain-token"
)

// Object is anything in JSON.
type Object = map[string]any

// Server is an API server. Its data is in an etcd that the caller provides.
type Server struct {
	Address string // host:port, for TLS
	Process *proctest.Process
	dir     string
	client  *http.Client
}

// Launch starts the API server program with an etcd, at an address that is free, and with its files in a directory. It
// does not wait until the server is ready.
func Launch(program, etcd, address, dir string) (*Server, error) {
	s := &Server{Address: address, dir: dir}
	if err := s.keys(); err != nil {
		return nil, err
	}
	_, err := s.File("tokens.csv", AdminToken+`,admin,admin,"system:masters"`+"\n"+PlainToken+",plain,plain\n")
	if err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(address, ":")
	s.Process, err = proctest.Launch(exec.Command(program, //nolint:gosec,noctx // given by the caller, who ends it
		"--etcd-servers="+etcd, "--secure-port="+port, "--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none", "--cert-dir="+filepath.Join(dir, "certs"),
		"--service-cluster-ip-range=10.0.0.0/24", "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+filepath.Join(dir, "sa.pub"),
		"--service-account-signing-key-file="+filepath.Join(dir, "sa.key"), "--authorization-mode=RBAC",
		"--token-auth-file="+filepath.Join(dir, "tokens.csv")))
	return s, err
}

// keys makes the keys that sign the tokens of service accounts.
func (s *Server) keys() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	private := pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	if _, err := s.File("sa.key", string(pem.EncodeToMemory(&private))); err != nil {
		return err
	}
	_, err = s.File("sa.pub", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})))
	return err
}

// File writes a file into the server's directory, and returns its path.
func (s *Server) File(name, text string) (path string, err error) {
	path = filepath.Join(s.dir, name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// Ready returns nil if the API server answers. Nothing else may be asked before.
func (s *Server) Ready() error {
	certificate, err := os.ReadFile(filepath.Join(s.dir, "certs", "apiserver.crt"))
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certificate)
	s.client = &http.Client{Timeout: 30 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, MaxIdleConnsPerHost: 16}}
	_, err = s.Ask("GET", "/readyz", nil)
	return err
}

// Kubeconfig writes a file for clients that reach the API server at an address and have a token, and returns its path.
func (s *Server) Kubeconfig(name, address, token string) (path string, err error) {
	return s.File(name+".kubeconfig", fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: "https://%s", certificate-authority: "%s/certs/apiserver.crt"}}]
users: [{name: test, user: {token: "%s"}}]
`, address, s.dir, token))
}

// WriteKubeconfig writes a file for clients that reach an API server at a URL without a login, and returns its path.
func WriteKubeconfig(dir, url string) (path string, err error) {
	path = filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"contexts": [{"name": "c", "context": {"cluster": "c"}}], "clusters": [{"name": "c", "cluster": {"server": %q}}]}
`, url)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// Ask sends a request of the administrator and returns the answer. A body of bytes is YAML and sent as it is, any other
// becomes JSON. A refusal is an error.
func (s *Server) Ask(method, path string, body any) (Object, error) {
	return s.AskAs(AdminToken, method, path, body)
}

// AskAs is Ask with another token.
func (s *Server) AskAs(token, method, path string, body any) (Object, error) {
	contentType := "application/json"
	text, isText := body.([]byte)
	switch {
	case isText:
		contentType = "application/yaml"
	case method == "PATCH":
		contentType = "application/strategic-merge-patch+json"
	}
	if !isText && body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	url := "https://" + s.Address + path
	request, err := http.NewRequestWithContext(context.Background(), method, url, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", contentType)
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if text, err = io.ReadAll(response.Body); err != nil {
		return nil, err
	}
	if response.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	}
	var answer Object
	if path != "/readyz" {
		err = json.Unmarshal(text, &answer)
	}
	return answer, err
}

// MakeNamespace makes a namespace with the service account that pods need.
func (s *Server) MakeNamespace(name string) error {
	if _, err := s.Ask("POST", "/api/v1/namespaces", Object{"metadata": Object{"name": name}}); err != nil {
		return err
	}
	return s.MakeAccount(name, "default")
}

// MakeAccount makes a service account.
func (s *Server) MakeAccount(namespace, name string) error {
	_, err := s.Ask("POST", "/api/v1/namespaces/"+namespace+"/serviceaccounts",
		Object{"metadata": Object{"name": name}})
	return err
}

// Pod is a pod in the API server, whose kubelet the caller plays.
type Pod struct {
	Server               *Server
	Namespace, Name, UID string
	Began                time.Time // when its containers started
}

// MakePod makes a pod whose containers have run for a while.
func (s *Server) MakePod(namespace, name, restartPolicy string, age time.Duration, containers ...string) (*Pod, error) {
	p := &Pod{Server: s, Namespace: namespace, Name: name, Began: time.Now().Add(-age)}
	var specs, statuses []Object
	for _, container := range containers {
		specs = append(specs, Object{"name": container, "image": "example.org/" + container})
		statuses = append(statuses, p.Running(container, "1", p.Began))
	}
	made, err := s.Ask("POST", "/api/v1/namespaces/"+namespace+"/pods", Object{
		"metadata": Object{"name": name},
		"spec": Object{"nodeName": "node-1", "restartPolicy": restartPolicy, "automountServiceAccountToken": false,
			"containers": specs},
	})
	if err != nil {
		return nil, err
	}
	p.UID = made["metadata"].(Object)["uid"].(string)
	return p, p.Report(Object{"phase": "Running", "containerStatuses": statuses,
		"conditions": []Object{{"type": "Ready", "status": "True"}}})
}

// Path returns the path of the pod in the API server.
func (p *Pod) Path() string { return "/api/v1/namespaces/" + p.Namespace + "/pods/" + p.Name }

// Report patches the pod's status, as its kubelet does, or a controller.
func (p *Pod) Report(status Object) error {
	_, err := p.Server.Ask("PATCH", p.Path()+"/status", Object{"status": status})
	return err
}

// Running returns the status of a running container: the start is a number of the caller's.
func (p *Pod) Running(container, start string, since time.Time) Object {
	return Status(container, start, Object{"running": Object{"startedAt": rfc3339(since)}}, nil)
}

// Ended returns the status of a container that started with the pod and was killed just now.
func (p *Pod) Ended(container, start string) Object {
	return Status(container, start, p.End(container, start), nil)
}

// Restarted returns the status of a container that was restarted once and runs.
func (p *Pod) Restarted(container string) Object {
	return Status(container, "2", Object{"running": Object{"startedAt": rfc3339(time.Now())}}, p.End(container, "1"))
}

// End returns the state of a container that was killed just now.
func (p *Pod) End(container, start string) Object {
	return Object{"terminated": Object{"exitCode": 137, "reason": "OOMKilled", "startedAt": rfc3339(p.Began),
		"finishedAt": rfc3339(time.Now()), "containerID": id(container, start)}}
}

// Status returns the status of a container with its state and, if it was restarted, the state before.
func Status(container, start string, state, last Object) Object {
	// null deletes members that a patch would keep
	whole := Object{"running": nil, "terminated": nil, "waiting": nil}
	for member, value := range state {
		whole[member] = value
	}
	s := Object{"name": container, "image": "example.org/" + container, "imageID": "", "ready": false,
		"restartCount": 0, "containerID": id(container, start), "state": whole}
	if last != nil {
		s["lastState"] = last
	}
	return s
}

func id(container, start string) string { return "containerd://" + container + "-" + start }

func rfc3339(at time.Time) string { return at.UTC().Format(time.RFC3339) }
