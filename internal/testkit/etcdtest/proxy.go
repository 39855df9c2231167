package etcdtest

import (
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// Proxy forwards bytes between clients and one member, and simulates a bad network. Faults accumulate until Heal.
type Proxy struct {
	listener net.Listener
	target   *url.URL

	mu      sync.Mutex
	fault   fault
	changed chan struct{} // closed when fault changes
	conns   map[net.Conn]bool
	wg      sync.WaitGroup
}

type fault struct {
	cut, stall, dropAnswers bool
	delay                   time.Duration
}

// NewProxy runs a proxy for the member at endpoint until the end of the test.
func NewProxy(t testing.TB, endpoint string) *Proxy {
	t.Helper()
	p, err := LaunchProxy(endpoint)
	proctest.Must(t, err)
	t.Cleanup(p.Close)
	return p
}

// LaunchProxy runs a proxy for the server at endpoint, of whatever protocol, until it is closed.
func LaunchProxy(endpoint string) (*Proxy, error) {
	target, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, target: target, changed: make(chan struct{}), conns: map[net.Conn]bool{}}
	p.wg.Go(p.accept)
	return p, nil
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	p.listener.Close()
	p.Cut()
	p.wg.Wait()
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Endpoint returns the proxy's URL for clients.
func (p *Proxy) Endpoint() string { return p.target.Scheme + "://" + p.Addr() }

// Cut closes all connections, and new ones as soon as they are made.
func (p *Proxy) Cut() {
	p.set(func(f *fault) { f.cut = true })
	p.closeAll()
}

// Stall holds back all bytes in both directions, like an unplugged cable. They arrive after Heal.
func (p *Proxy) Stall() { p.set(func(f *fault) { f.stall = true }) }

// DropAnswers lets requests through and drops the answers.
func (p *Proxy) DropAnswers() { p.set(func(f *fault) { f.dropAnswers = true }) }

// Delay delays all data by d, in each direction.
func (p *Proxy) Delay(d time.Duration) { p.set(func(f *fault) { f.delay = d }) }

// Heal ends all faults. It closes connections that lost bytes, so a call in flight may fail.
func (p *Proxy) Heal() {
	if was := p.set(func(f *fault) { *f = fault{} }); was.dropAnswers {
		p.closeAll()
	}
}

func (p *Proxy) set(change func(*fault)) (was fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was = p.fault
	change(&p.fault)
	close(p.changed)
	p.changed = make(chan struct{})
	return was
}

func (p *Proxy) now() (fault, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault, p.changed
}

func (p *Proxy) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		member, err := net.Dial("tcp", p.target.Host)
		if err != nil {
			client.Close()
			continue
		}
		if !p.keep(client, member) {
			continue
		}
		p.wg.Go(func() { p.pump(member, client, false) })
		p.wg.Go(func() { p.pump(client, member, true) })
	}
}

// keep registers a new connection, or closes both ends if the network is cut.
func (p *Proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.fault.cut {
			c.Close()
		} else {
			p.conns[c] = true
		}
	}
	return !p.fault.cut
}

// pump copies one direction of a connection until either end closes, then closes both.
func (p *Proxy) pump(to, from net.Conn, answers bool) {
	defer func() {
		to.Close()
		from.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, from)
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && p.pass(answers) {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits as long as the current faults require, and reports whether to forward the bytes.
func (p *Proxy) pass(answers bool) bool {
	f, changed := p.now()
	if f.delay > 0 {
		time.Sleep(f.delay)
		f, changed = p.now()
	}
	for f.stall && !f.cut {
		<-changed
		f, changed = p.now()
	}
	return !f.cut && !(f.dropAnswers && answers)
}
