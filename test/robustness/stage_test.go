package robustness

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// The times of a run, much shorter than those of production, with the same relations: the warning is longer than the
// longest pause between two attempts of a holder and the longest interruption that an unlocker may not notice, 5 s,
// together.
const (
	skew      = 500 * time.Millisecond
	warning   = 7 * time.Second
	shortLife = 1500 * time.Millisecond
	longLife  = 4 * time.Second
	margin    = 300 * time.Millisecond
	quota     = 48 << 20

	// Those of a client process.
	workers        = 5
	clockOff       = skew * 9 / 10
	attemptTimeout = 600 * time.Millisecond
	unlockTimeout  = 4 * time.Second
)

// The worlds that a run can take place in.
const (
	plainWorld        = "plain"        // a network that breaks
	wireWorld         = "wire"         // one that also loses, repeats and delays single transactions
	loginWorld        = "login"        // users whose tokens end after two seconds
	certificatesWorld = "certificates" // certificates on both sides, which are replaced
)

// config describes a run. The seed decides what it leaves open.
type config struct {
	Seed    uint64
	For     time.Duration
	Nodes   int
	World   string
	Mutant  *mutant  `json:"-"`
	Without []string // faults that do not happen
	Favour  []string // faults that happen ten times as often
	Calm    bool     // nothing gives unlockers reason to wait
	Locks   int      // how many there are; 0 for all that have a name
	Witness bool     // one watches the processes
}

func (c config) settle() config {
	r := rand.New(rand.NewPCG(c.Seed, 1))
	c.Nodes = cmp.Or(c.Nodes, []int{1, 3, 3}[r.IntN(3)])
	c.World = cmp.Or(c.World,
		[]string{wireWorld, wireWorld, wireWorld, plainWorld, loginWorld, certificatesWorld}[r.IntN(6)])
	c.Witness = r.IntN(4) > 0
	if c.Mutant != nil {
		c.Witness = c.Mutant.witness
	}
	return c
}

func (c config) String() string {
	return fmt.Sprintf("seed %d, %d nodes, %s, %v", c.Seed, c.Nodes, c.World, c.For)
}

type stage struct {
	t testing.TB
	config
	found  finder
	dir    string
	began  int64
	rand   *rand.Rand
	layout protocol.Layout

	members  *etcdtest.Members
	issued   int    // client certificates
	down     []bool // members that were killed or stand still
	direct   *clientv3.Client
	recorder *recorder
	resource *resource
	keepers  *keepers
	store    *lockstore.Store // of the operator who forces
	forced   bytes.Buffer     // what the store says

	ours, theirs route    // holders go one way to etcd, unlockers and the dashboard another
	given        []string // what the programs are told of etcd instead, where it is not empty

	unlockers []*child
	witness   *child // of this machine; nil in a run without one
	dash      *child
	clients   []*child
	former    []*child // processes that ended
	spawned   int

	faults []*faultDone
	wiped  []wipe
	counts map[string]int
	wg     sync.WaitGroup
}

func (s *stage) setUp() {
	s.members = etcdtest.Cluster(s.t, s.Nodes, s.options()...)
	s.issue()
	s.ours = s.newRoute(0)
	s.theirs = s.newRoute(10)
	s.record()
	s.resource = newResource(s.t)
	theirs := s.client(s.theirs.proxied())
	brinkmen := 1
	if s.Calm {
		brinkmen = 8
	}
	s.startKeepers(theirs, brinkmen)
	s.store = lockstore.New(theirs, s.layout, lockstore.WithLog(zerolog.New(&s.forced)))
	s.setClock(0)
	for i := range 2 {
		s.unlockers = append(s.unlockers, s.startUnlocker(i))
	}
	s.startDash()
	if s.Witness {
		s.witness = s.startWitness()
	}
	for range 3 {
		s.clients = append(s.clients, s.startClient())
	}
}

func newStage(t testing.TB, c config, dir string) *stage {
	layout, err := protocol.NewLayout(prefix)
	proctest.Must(t, err)
	return &stage{
		t: t, config: c, dir: dir, began: stamp(), rand: rand.New(rand.NewPCG(c.Seed, 2)), layout: layout,
		down: make([]bool, c.Nodes), counts: map[string]int{},
		found: func(rule, format string, args ...any) { t.Errorf(rule+": "+format, args...) },
	}
}

func (s *stage) record() {
	s.direct = s.client(s.members.Endpoints())
	s.recorder = &recorder{etcd: s.client(s.members.Endpoints())}
	ctx, stop := context.WithCancel(context.Background())
	s.t.Cleanup(func() { stop(); s.wg.Wait() })
	s.wg.Go(func() { s.recorder.run(ctx) })
}

func (s *stage) options() []etcdtest.Option {
	options := []etcdtest.Option{etcdtest.Quota(quota)}
	if *disksFlag {
		options = append(options, etcdtest.Fsync())
	}
	switch s.World {
	case loginWorld:
		options = append(options, etcdtest.Auth(), etcdtest.TokenTTL(2))
	case certificatesWorld:
		options = append(options, etcdtest.ClientCerts())
	}
	return options
}

// route is a way to etcd: through a proxy before each member, and a wire before that, where there are wires.
type route struct {
	proxies []*etcdtest.Proxy
	wires   []*wire
}

// newRoute creates a route. The unlockers' route, which has few transactions, has a different seed.
func (s *stage) newRoute(seed uint64) (r route) {
	for i, e := range s.members.Endpoints() {
		r.proxies = append(r.proxies, etcdtest.NewProxy(s.t, e))
		if s.World == wireWorld {
			r.wires = append(r.wires, newWire(s.t, r.proxies[i].Endpoint(), s.Seed+seed+uint64(i), s.Mutant, seed > 0))
		}
	}
	return r
}

func (r route) proxied() (all []string) {
	for _, p := range r.proxies {
		all = append(all, p.Endpoint())
	}
	return all
}

func (r route) endpoints() (all []string) {
	for _, w := range r.wires {
		all = append(all, w.Addr)
	}
	if len(all) == 0 {
		return r.proxied()
	}
	return all
}

type access struct {
	Endpoints         []string
	User, Password    string
	CACert, Cert, Key string
}

func (s *stage) access(endpoints []string) access {
	a := access{Endpoints: endpoints}
	switch s.World {
	case loginWorld:
		a.User = etcdtest.RootUser
		a.Password = etcdtest.RootPassword
	case certificatesWorld:
		a.CACert = s.members.CA().File()
		a.Cert = filepath.Join(s.dir, "current", "client.crt")
		a.Key = filepath.Join(s.dir, "current", "client.key")
	}
	return a
}

func (a access) connect(options ...grpc.DialOption) (*clientv3.Client, error) {
	conf := clientv3.Config{
		Endpoints: a.Endpoints, MaxUnaryRetries: 1, Logger: zap.NewNop(), Username: a.User, Password: a.Password,
		DialTimeout: time.Second, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		DialOptions: options,
	}
	if a.CACert != "" {
		pem, err := os.ReadFile(a.CACert)
		if err != nil {
			return nil, err
		}
		conf.TLS = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
		conf.TLS.RootCAs.AppendCertsFromPEM(pem)
		conf.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(a.Cert, a.Key)
			return &pair, err
		}
	}
	for { // with a password it wants a token at once, and etcd may be away
		etcd, err := clientv3.New(conf)
		if err == nil || a.User == "" {
			return etcd, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// client is one of the run's own, which recovers quickly after a fault.
func (s *stage) client(endpoints []string) *clientv3.Client {
	c, err := s.access(endpoints).connect(grpc.WithConnectParams(grpc.ConnectParams{
		MinConnectTimeout: time.Second,
		Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.5,
			MaxDelay: 500 * time.Millisecond},
	}))
	proctest.Must(s.t, err)
	s.t.Cleanup(func() { c.Close() })
	return c
}

// issue creates a new client certificate, and replaces the old one atomically, so that no program reads half of it.
func (s *stage) issue() {
	if s.World != certificatesWorld {
		return
	}
	s.t.Helper()
	s.issued++
	dir := filepath.Join(s.dir, fmt.Sprint("certificates-", s.issued))
	cert, key := s.members.CA().Issue(s.t, "client")
	err := os.Mkdir(dir, 0o700)
	for _, file := range []string{cert, key} {
		err = errors.Join(err, os.Rename(file, filepath.Join(dir, filepath.Base(file))))
	}
	next := filepath.Join(s.dir, "next")
	proctest.Must(s.t, errors.Join(err, os.Symlink(dir, next), os.Rename(next, filepath.Join(s.dir, "current"))))
}

// program starts one of our programs, which uses the unlockers' route to etcd.
func (s *stage) program(kind, binary string, args ...string) *child {
	to := s.given
	if len(to) == 0 {
		to = s.theirs.endpoints()
	}
	addr := proctest.FreeAddr(s.t)
	a := s.access(to)
	cmd := programs.Command(s.t, binary, append(args, "--web.listen-address="+addr, "--web.shutdown-delay=0s",
		"--log.format=json", "--etcd.endpoints="+strings.Join(to, ","), "--etcd.user="+a.User,
		"--etcd.cacert="+a.CACert, "--etcd.cert="+a.Cert, "--etcd.key="+a.Key)...)
	cmd.Env = append(cmd.Env, "UNLOCKER_ETCD_PASSWORD="+a.Password, "MUTEXDASH_ETCD_PASSWORD="+a.Password,
		clockVariable+"="+s.clockFile())
	p := launch(s.t, s.name(kind), s.dir, cmd)
	p.addr = addr
	return p
}

func (s *stage) name(kind string) string {
	s.spawned++
	return fmt.Sprintf("%s-%d", kind, s.spawned)
}

// startUnlocker starts one of the two. The clock of the first can be set. What more says overrides what they are told
// else.
func (s *stage) startUnlocker(i int, more ...string) *child {
	binary := []string{"unlocker-shifted", "unlocker"}[i]
	return s.program("unlocker", binary, append([]string{
		"--policy=auto-unlock", "--sweep.min-warning=" + warning.String(), "--sweep.clock-skew=" + skew.String(),
		"--sweep.abandoned=unlock", "--sweep.abandoned-grace=" + abandonedGrace.String(),
	}, more...)...)
}

func (s *stage) startDash() {
	s.dash = s.program("mutexdash", "mutexdash", "--web.ops-address="+proctest.FreeAddr(s.t))
}

func (s *stage) startClient() *child {
	name := s.name("client")
	c := clientConfig{
		Process: name, Seed: s.rand.Uint64(), Access: s.access(s.ours.endpoints()), Resource: s.resource.addr,
		Notes: filepath.Join(s.dir, name+".jsonl"), Locks: s.locks(),
		ForgedToken: s.Mutant != nil && s.Mutant.forged, Plain: s.Mutant != nil && s.Mutant.plain,
		Jobs: s.Mutant != nil && s.Mutant.jobs,
	}
	b, err := json.Marshal(c)
	proctest.Must(s.t, err)
	p := launch(s.t, name, s.dir, proctest.Self(clientVariable, string(b)))
	p.notes = c.Notes
	return p
}

func (c config) locks() []string {
	all := []string{"a", "a/b", "ab", "c", "d", "e", "ü", ".f", "g", "h", "i", "j"}
	if c.Locks > 0 {
		return all[:c.Locks]
	}
	return all
}
