package daemon

import (
	"crypto/x509"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"github.com/clustermutex/unlocker/internal/certificate"
)

// Config is the part of the web configuration that programs use themselves. The exporter-toolkit uses all of it.
type Config struct {
	Users map[string]string `yaml:"basic_auth_users"`
	TLS   struct {
		Cert       string `yaml:"cert_file"`
		Text       string `yaml:"cert"`
		ClientAuth string `yaml:"client_auth_type"`
	} `yaml:"tls_server_config"`
}

// ReadConfig rereads the file each time, as the web server does: adding or removing a user takes effect at once.
func (s WebSettings) ReadConfig() (c Config, err error) {
	if s.ConfigFile == "" {
		return c, nil
	}
	text, err := os.ReadFile(s.ConfigFile)
	if err == nil {
		err = yaml.Unmarshal(text, &c)
	}
	if c.TLS.Cert != "" && !filepath.IsAbs(c.TLS.Cert) {
		c.TLS.Cert = filepath.Join(filepath.Dir(s.ConfigFile), c.TLS.Cert)
	}
	return c, err
}

// Certificate returns the certificate of the server as its file has it now; nil if there is none that can be read.
func (s WebSettings) Certificate() *x509.Certificate {
	c, err := s.ReadConfig()
	if err != nil || c.TLS.Cert == "" {
		return certificate.Read([]byte(c.TLS.Text))
	}
	return certificate.ReadFile(c.TLS.Cert)
}
