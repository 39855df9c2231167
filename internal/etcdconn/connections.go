package etcdconn

import (
	"crypto/sha256"
	"net"
	"os"
	"sync"

	"google.golang.org/grpc"
)

// Connections tracks the TLS connections of one client. New ones use the certificate files as they are at that moment;
// existing ones keep theirs until Renew.
type Connections struct {
	settings Settings

	mu   sync.Mutex
	open map[*connection]struct{}
}

// connection is an open connection.
type connection struct {
	net.Conn
	of    *Connections
	files [sha256.Size]byte // hash of the files that it was made with
}

// NewConnections returns the connections of a client that is yet to be created with these settings.
func NewConnections(s Settings) *Connections {
	return &Connections{settings: s, open: map[*connection]struct{}{}}
}

// DialOptions returns options for [New] that let its connections be renewed.
func (c *Connections) DialOptions() []grpc.DialOption {
	targets, err := c.settings.targets()
	if err != nil || targets[0].scheme == "http" {
		return nil
	}
	return []grpc.DialOption{grpc.WithTransportCredentials(security{c.settings, c})}
}

// Renew closes the connections that were made with other files than the current ones, and returns how many. The client
// reconnects by itself; requests in flight may fail. The caller has checked the settings before.
func (c *Connections) Renew() int {
	now := c.settings.files()
	var old []*connection
	c.mu.Lock()
	for conn := range c.open {
		if conn.files != now {
			old = append(old, conn)
		}
	}
	c.mu.Unlock()
	for _, conn := range old {
		conn.Close()
	}
	return len(old)
}

// keep tracks a connection until it is closed.
func (c *Connections) keep(conn net.Conn, files [sha256.Size]byte) net.Conn {
	kept := &connection{Conn: conn, of: c, files: files}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[kept] = struct{}{}
	return kept
}

func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// files returns a hash of the contents of the certificate files. A file that cannot be read counts as empty.
func (s Settings) files() (sum [sha256.Size]byte) {
	all := sha256.New()
	for _, file := range []string{s.CACert, s.Cert, s.Key} {
		if file == "" {
			continue
		}
		text, _ := os.ReadFile(file)
		one := sha256.Sum256(text)
		all.Write(one[:])
	}
	all.Sum(sum[:0])
	return sum
}
