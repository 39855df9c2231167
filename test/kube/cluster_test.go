//go:build kube

package kube

import (
	"bytes"
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
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/etcdtest"
	"github.com/clustermutex/unlocker/internal/proctest"
)

// adminToken may do everything, and plainToken nothing until a role binding says so.
const (
	adminToken = "admin-token"
	plainToken = "plain-token"
)

// object is anything in JSON.
type object = map[string]any

// cluster is an API server with an etcd.
type cluster struct {
	etcd    *etcdtest.Server
	process *proctest.Process
	address string
	dir     string
	client  *http.Client
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	if *apiServer == "" {
		t.Fatal("the API server is missing: make kube")
	}
	c := &cluster{etcd: etcdtest.Start(t), address: proctest.FreeAddr(t), dir: t.TempDir()}
	c.keys(t)
	c.file(t, "tokens.csv", adminToken+`,admin,admin,"system:masters"`+"\n"+plainToken+",plain,plain\n")
	_, port, _ := strings.Cut(c.address, ":")
	c.process = proctest.Start(t, proctest.Command(t, *apiServer,
		"--etcd-servers="+c.etcd.Endpoint(), "--secure-port="+port, "--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none", "--cert-dir="+filepath.Join(c.dir, "certs"),
		"--service-cluster-ip-range=10.0.0.0/24", "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+filepath.Join(c.dir, "sa.pub"),
		"--service-account-signing-key-file="+filepath.Join(c.dir, "sa.key"), "--authorization-mode=RBAC",
		"--token-auth-file="+filepath.Join(c.dir, "tokens.csv")))
	proctest.Eventually(t, "the API server", c.ready)
	return c
}

// keys makes those that sign the tokens of service accounts.
func (c *cluster) keys(t *testing.T) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	private := x509.MarshalPKCS1PrivateKey(key)
	c.file(t, "sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: private})))
	c.file(t, "sa.pub", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})))
}

func (c *cluster) file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// ready returns nil when the API server answers. Its certificate is there then.
func (c *cluster) ready() error {
	certificate, err := os.ReadFile(filepath.Join(c.dir, "certs", "apiserver.crt"))
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certificate)
	c.client = &http.Client{Timeout: 30 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, MaxIdleConnsPerHost: 16}}
	_, err = c.try("GET", "/readyz", "", nil)
	return err
}

// kubeconfig writes a file for clients that reach the API server at an address and have a token.
func (c *cluster) kubeconfig(t *testing.T, address, token string) string {
	t.Helper()
	return c.file(t, strings.ReplaceAll(t.Name(), "/", "-")+".kubeconfig", fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: "https://%s", certificate-authority: "%s/certs/apiserver.crt"}}]
users: [{name: test, user: {token: "%s"}}]
`, address, c.dir, token))
}

// try asks the API server and returns what it answers.
func (c *cluster) try(method, path, contentType string, body []byte) (object, error) {
	request, err := http.NewRequest(method, "https://"+c.address+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+adminToken)
	request.Header.Set("Content-Type", contentType)
	response, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	}
	var answer object
	if path != "/readyz" {
		err = json.Unmarshal(text, &answer)
	}
	return answer, err
}

// ask is try where a refusal fails the test.
func (c *cluster) ask(t *testing.T, method, path, contentType string, body any) object {
	t.Helper()
	text, ok := body.([]byte)
	if !ok && body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := c.try(method, path, contentType, text)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func (c *cluster) create(t *testing.T, path string, o object) object {
	t.Helper()
	return c.ask(t, "POST", path, "application/json", o)
}

// namespace makes one with the service account that pods need.
func (c *cluster) namespace(t *testing.T, name string) {
	t.Helper()
	c.create(t, "/api/v1/namespaces", object{"metadata": object{"name": name}})
	c.create(t, "/api/v1/namespaces/"+name+"/serviceaccounts", object{"metadata": object{"name": "default"}})
}
