// Package proctest runs programs for tests and benchmarks: it builds ours once, starts processes on free addresses,
// waits for their output, signals them, and leaves none behind.
package proctest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"
)

// Timeout is how long anything here may take before the test fails: long, because a busy machine with -race is slow.
const Timeout = time.Minute

// FreeAddr returns a free address, host:port, which nobody else gets from here until the test has ended. Its port is
// below those of outgoing connections, so that it is still free when a program restarts.
func FreeAddr(t testing.TB) string {
	t.Helper()
	addr, reservation, err := reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reservation.Close() })
	return addr
}

// FindAddr is FreeAddr without a test, and without the reservation.
func FindAddr() (string, error) {
	addr, reservation, err := reserve()
	if err != nil {
		return "", err
	}
	return addr, reservation.Close()
}

// reserve finds an address that is free for TCP and holds its UDP port, which nobody wants: tests that run at the same
// time in other processes see that the address is taken before a program listens there.
func reserve() (string, net.PacketConn, error) {
	for range 100 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(10_000+rand.IntN(22_000)))
		reservation, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		if l, err := net.Listen("tcp", addr); err == nil {
			return addr, reservation, l.Close()
		}
		reservation.Close()
	}
	return "", nil, errors.New("no free port on 127.0.0.1")
}

// Eventually calls try until it returns nil.
func Eventually(t testing.TB, what string, try func() error) {
	t.Helper()
	for deadline := time.Now().Add(Timeout); ; time.Sleep(20 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, Timeout, err)
		}
	}
}

// Answers waits until a GET of the URL returns this status, and returns the body.
func Answers(t testing.TB, url string, status int) (body string) {
	t.Helper()
	Eventually(t, url, func() error {
		got, text, err := Get(&http.Client{}, url)
		if err == nil && got != status {
			err = fmt.Errorf("status %d, want %d: %.300s", got, status, text)
		}
		body = text
		return err
	})
	return body
}

// Get returns the status and the body of one GET.
func Get(client *http.Client, url string) (status int, body string, err error) {
	c := *client
	c.Timeout = 10 * time.Second
	resp, err := c.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}
