package main

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/spf13/pflag"
)

// address is where a server listens: the requested address or, if the default is taken and none was requested, any free
// one.
type address struct {
	what, flag string
	value      string
	asked      func() bool
	taken      string // the default address, if it was in use
}

func listenFlag(fs *pflag.FlagSet, name, value, what string) *address {
	a := &address{what: what, flag: name, asked: func() bool { return fs.Changed(name) }}
	fs.StringVar(&a.value, name, value, "`host:port` of "+what+"; if the default is in use, a free port is used")
	return a
}

// listen binds the address.
func (a *address) listen() (net.Listener, error) {
	l, err := net.Listen("tcp", a.value)
	if errors.Is(err, syscall.EADDRINUSE) && !a.asked() {
		a.taken = a.value
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s cannot listen on %s: something else does; give another --%s, or port 0 for any "+
			"free one",
			a.what, a.value, a.flag)
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot listen: %w; is --%s right?", a.what, err, a.flag)
	}
	return l, nil
}

// free returns an address that is free, for a server that binds it by itself.
func (a *address) free() (string, error) {
	l, err := a.listen()
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
