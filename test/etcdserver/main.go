// Etcdserver runs one etcd with its JSON gateway, for the tests of clients in other languages. It prints its endpoint
// as the first line, and ends when its standard input does, so that it never outlives the test that started it.
//
// A test that kills it and starts it again with the same -data and -listen has an etcd that was restarted. One that
// stops it with SIGSTOP has an etcd that hangs. Package etcdtest runs it, too, for tests with the race detector.
package main

import (
	"context"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/internal/testkit/etcdembed"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

func main() {
	etcdtest.Member()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "etcdserver:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	listen := flag.String("listen", "", "host:port to serve clients on (default a free port of 127.0.0.1)")
	data := flag.String("data", "", "keep the data in this directory (default a temporary one)")
	certs := flag.String("tls", "", "serve TLS with a certificate made for it: cert.pem (also its authority) and "+
		"key.pem in this directory")
	clients := flag.Bool("client-certs", false, "want a certificate of clients; that of -tls will do")
	tokens := flag.Uint("token-ttl", 0, "seconds that an unused login token lives (default etcd's, 300)")
	quota := flag.Int64("quota", 0, "bytes that the store may grow to (default etcd's)")
	flag.Parse()

	if *data == "" {
		if *data, err = os.MkdirTemp("", "etcdserver"); err != nil {
			return err
		}
		defer os.RemoveAll(*data)
	}
	conf := etcdembed.Config{
		Dir: filepath.Join(*data, "default.etcd"), Client: *listen, Quota: *quota, TokenTTL: *tokens, Throwaway: true,
		Gateway: true,
	}
	if conf.Client == "" {
		if conf.Client, err = proctest.FindAddr(); err != nil {
			return err
		}
	}
	if conf.Peer, err = proctest.FindAddr(); err != nil {
		return err
	}
	scheme := "http://"
	if *certs != "" {
		scheme = "https://"
		pair, err := transport.SelfCert(zap.NewNop(), *certs, []string{conf.Client}, 1, x509.ExtKeyUsageClientAuth)
		if err != nil {
			return err
		}
		conf.Cert = pair.CertFile
		conf.Key = pair.KeyFile
		if *clients {
			conf.ClientCA = pair.CertFile
		}
	}
	return serve(conf, scheme+conf.Client)
}

// serve runs the etcd until its standard input ends.
func serve(conf etcdembed.Config, endpoint string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	etcd, err := etcdembed.Start(ctx, conf)
	if err != nil {
		return err
	}
	defer etcd.Stop()
	fmt.Fprintln(os.Stdout, endpoint)

	over := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		over <- err
	}()
	select {
	case err := <-over:
		return err
	case <-etcd.Done():
		return errors.New("etcd stopped by itself")
	}
}
