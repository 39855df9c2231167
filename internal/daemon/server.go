package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
	"github.com/rs/zerolog"
)

// Server serves HTTP on one address. Its time and size limits suit pages and metrics, not uploads or streams.
type Server struct {
	Address    string
	ConfigFile string // of the exporter-toolkit; may be empty
	Handler    http.Handler
	Drain      time.Duration // how long requests in flight may take after it is stopped
	Log        zerolog.Logger

	listener net.Listener
}

// Listen binds the address, so that a wrong one is known before anything runs. Otherwise Run binds it.
func (s *Server) Listen() (net.Addr, error) {
	l, err := net.Listen("tcp", s.Address)
	if err != nil {
		return nil, err
	}
	s.listener = boundedListener{l}
	return l.Addr(), nil
}

// unreadBytes is how much of an answer the kernel takes before it is read. By default it takes megabytes: a client that
// pipelines requests and reads nothing then has dozens of pages made while all others wait. With this much, making the
// next answer waits for the reader of the last.
const unreadBytes = 16 << 10

// boundedListener accepts connections that hold back writers early.
type boundedListener struct{ net.Listener }

// Accept implements [net.Listener].
func (l boundedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(unreadBytes) // without it, it works as well
	}
	return c, err
}

// Run serves until ctx ends, then gives requests in flight the time of Drain to finish.
func (s *Server) Run(ctx context.Context) error {
	if s.listener == nil {
		if _, err := s.Listen(); err != nil {
			return err
		}
	}
	server := &http.Server{
		Handler:           s.Handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          stdLogger(s.Log),
	}
	ended := make(chan error, 1)
	go func() {
		ended <- web.Serve(s.listener, server, &web.FlagConfig{WebConfigFile: &s.ConfigFile}, slogger(s.Log))
	}()
	select {
	case err := <-ended:
		s.listener.Close()
		return err
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Drain)
	defer cancel()
	if err := server.Shutdown(drain); err != nil {
		server.Close()
		return fmt.Errorf("requests were still in flight after %v", s.Drain)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
