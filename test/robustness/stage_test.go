package robustness

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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
)

// The worlds that a run can take place in.
const (
	plainWorld        = "plain"        // a network that breaks
	wireWorld         = "wire"         // one that also loses, repeats and delays single transactions
	loginWorld        = "login"        // users whose tokens end after two seconds
	certificatesWorld = "certificates" // certificates on both sides, which are replaced
)

// config is a run. The seed decides what the others leave open.
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

// settle lets the seed decide what is open.
func (c config) settle() config {
	r := rand.New(rand.NewPCG(c.Seed, 1))
	nodes := []int{1, 3, 3}[r.IntN(3)]
	world := []string{wireWorld, wireWorld, wireWorld, plainWorld, loginWorld, certificatesWorld}[r.IntN(6)]
	if c.Nodes == 0 {
		c.Nodes = nodes
	}
	if c.World == "" {
		c.World = world
	}
	c.Witness = r.IntN(4) > 0
	if c.Mutant != nil {
		c.Witness = c.Mutant.witness
	}
	return c
}

func (c config) String() string {
	return fmt.Sprintf("seed %d, %d nodes, %s, %v", c.Seed, c.Nodes, c.World, c.For)
}

// stage is everything that runs.
type stage struct {
	t testing.TB
	config
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

	// Holders go one way to etcd, unlockers and the dashboard another.
	ours, theirs   []*etcdtest.Proxy
	wires, theirsW []*wire
	given          []string // what the programs are told of etcd instead, where it is not empty

	unlockers []*child
	witness   *child // of this machine; nil in a run without one
	dash      *child
	addrs     map[*child]string
	clients   []*child
	notes     map[*child]string
	former    []*child // processes that ended
	spawned   int

	faults    []faultDone
	wiped     []wipe
	counts    map[string]int
	stopWatch context.CancelFunc
	wg        sync.WaitGroup
}

// setUp starts everything.
func setUp(t testing.TB, c config, dir string) *stage {
	t.Helper()
	s := newStage(t, c, dir)
	s.members = etcdtest.Cluster(t, c.Nodes, s.options()...)
	s.issue()
	for i, e := range s.members.Endpoints() {
		s.ours = append(s.ours, etcdtest.NewProxy(t, e))
		s.theirs = append(s.theirs, etcdtest.NewProxy(t, e))
		if c.World == wireWorld {
			s.wires = append(s.wires, newWire(t, s.ours[i].Endpoint(), c.Seed+uint64(i), c.Mutant, false))
			s.theirsW = append(s.theirsW, newWire(t, s.theirs[i].Endpoint(), c.Seed+uint64(10+i), c.Mutant, true))
		}
	}
	s.direct = s.client(s.members.Endpoints())
	s.recorder = newRecorder(s.client(s.members.Endpoints()))
	ctx, stop := context.WithCancel(context.Background())
	s.stopWatch = stop
	t.Cleanup(func() { stop(); s.wg.Wait() })
	s.wg.Go(func() { s.recorder.run(ctx) })
	s.resource = newResource(t)
	theirs := s.client(endpoints(s.theirs))
	brinkmen := 1
	if c.Calm {
		brinkmen = 8
	}
	s.keepers = startKeepers(theirs, s.layout, c.Seed, brinkmen)
	t.Cleanup(s.keepers.end)
	s.store = lockstore.New(theirs, s.layout, lockstore.WithLog(zerolog.New(&s.forced)))
	s.setClock(0)
	for i := range 2 {
		s.unlockers = append(s.unlockers, s.startUnlocker(i))
	}
	s.startDash()
	if c.Witness {
		s.witness = s.startWitness()
	}
	for range 3 {
		s.clients = append(s.clients, s.startClient())
	}
	return s
}

// newStage is a stage on which nothing runs.
func newStage(t testing.TB, c config, dir string) *stage {
	t.Helper()
	layout, err := protocol.NewLayout(prefix)
	if err != nil {
		t.Fatal(err)
	}
	return &stage{
		t: t, config: c, dir: dir, began: stamp(), rand: rand.New(rand.NewPCG(c.Seed, 2)), layout: layout,
		down:  make([]bool, c.Nodes),
		addrs: map[*child]string{}, notes: map[*child]string{}, counts: map[string]int{},
	}
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

func endpoints(proxies []*etcdtest.Proxy) (all []string) {
	for _, p := range proxies {
		all = append(all, p.Endpoint())
	}
	return all
}

// way is how programs reach etcd: through the wires where there are some.
func way(proxies []*etcdtest.Proxy, wires []*wire) (all []string) {
	if len(wires) == 0 {
		return endpoints(proxies)
	}
	for _, w := range wires {
		all = append(all, w.Addr)
	}
	return all
}

// client is one of the run's own, which recovers quickly after a fault.
func (s *stage) client(endpoints []string) *clientv3.Client {
	s.t.Helper()
	conf := clientv3.Config{
		Endpoints: endpoints, MaxUnaryRetries: 1, Logger: zap.NewNop(), DialTimeout: time.Second,
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.5,
				MaxDelay: 500 * time.Millisecond}, MinConnectTimeout: time.Second,
		})},
	}
	if s.World == loginWorld {
		conf.Username = etcdtest.RootUser
		conf.Password = etcdtest.RootPassword
	}
	if s.World == certificatesWorld {
		cert, key := s.certificate()
		conf.TLS = &tls.Config{RootCAs: s.members.CA().Pool(), MinVersion: tls.VersionTLS12}
		conf.TLS.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key)
			return &pair, err
		}
	}
	c, err := clientv3.New(conf)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// certificate is that of all clients.
func (s *stage) certificate() (cert, key string) {
	return filepath.Join(s.dir, "current", "client.crt"), filepath.Join(s.dir, "current", "client.key")
}

// issue makes clients a new certificate, and puts it in the place of the old one in one step, so that nobody reads half
// of it.
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
	if err = errors.Join(err, os.Symlink(dir, next), os.Rename(next, filepath.Join(s.dir, "current"))); err != nil {
		s.t.Fatal(err)
	}
}

// settings are the flags and variables with which our programs reach etcd.
func (s *stage) settings(program string) (env, args []string) {
	to := s.given
	if len(to) == 0 {
		to = way(s.theirs, s.theirsW)
	}
	args = []string{"--etcd.endpoints=" + strings.Join(to, ",")}
	switch s.World {
	case loginWorld:
		args = append(args, "--etcd.user="+etcdtest.RootUser)
		env = append(env, strings.ToUpper(program)+"_ETCD_PASSWORD="+etcdtest.RootPassword)
	case certificatesWorld:
		cert, key := s.certificate()
		args = append(args, "--etcd.cacert="+s.members.CA().File(), "--etcd.cert="+cert, "--etcd.key="+key)
	}
	return env, args
}

// startUnlocker starts one of the two. The clock of the first can be set. What more says goes before what they
// are told else.
func (s *stage) startUnlocker(i int, more ...string) *child {
	s.t.Helper()
	s.spawned++
	name := fmt.Sprintf("unlocker-%d", s.spawned)
	addr := proctest.FreeAddr(s.t)
	env, args := s.settings("unlocker")
	program := "unlocker"
	if i == 0 {
		program = "unlocker-shifted"
		env = append(env, clockVariable+"="+s.clockFile())
	}
	cmd := programs.Command(s.t, program, slices.Concat(args, []string{
		"--policy=auto-unlock", "--sweep.min-warning=" + warning.String(), "--sweep.clock-skew=" + skew.String(),
		"--web.listen-address=" + addr,
		"--web.shutdown-delay=0s", "--log.format=json", "--sweep.abandoned=unlock",
		"--sweep.abandoned-grace=" + abandonedGrace.String(),
	}, more)...)
	cmd.Env = append(cmd.Env, env...)
	p := launch(s.t, name, filepath.Join(s.dir, name+".log"), cmd)
	s.addrs[p] = addr
	return p
}

func (s *stage) startDash() {
	s.t.Helper()
	s.spawned++
	name := fmt.Sprintf("mutexdash-%d", s.spawned)
	addr := proctest.FreeAddr(s.t)
	env, args := s.settings("mutexdash")
	cmd := programs.Command(s.t, "mutexdash", append(args,
		"--web.listen-address="+addr, "--web.ops-address="+proctest.FreeAddr(s.t),
		"--web.shutdown-delay=0s")...)
	cmd.Env = append(cmd.Env, env...)
	s.dash = launch(s.t, name, filepath.Join(s.dir, name+".log"), cmd)
	s.addrs[s.dash] = addr
}

func (s *stage) startClient() *child {
	s.t.Helper()
	s.spawned++
	name := fmt.Sprintf("client-%d", s.spawned)
	c := clientConfig{
		Process: name, Seed: s.rand.Uint64(), Endpoints: way(s.ours, s.wires), Resource: s.resource.addr,
		Notes: filepath.Join(s.dir, name+".jsonl"),
		Locks: s.locks(), Workers: 5, Clock: skew * 9 / 10, Attempt: 600 * time.Millisecond, Unlock: 4 * time.Second,
		ShortLife: shortLife, LongOne: longLife, Margin: margin, ForgedToken: s.Mutant != nil && s.Mutant.forged,
		Plain: s.Mutant != nil && s.Mutant.plain,
	}
	switch s.World {
	case loginWorld:
		c.User = etcdtest.RootUser
		c.Password = etcdtest.RootPassword
	case certificatesWorld:
		c.CACert = s.members.CA().File()
		c.Cert, c.Key = s.certificate()
	}
	b, err := json.Marshal(c)
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := proctest.Self(clientVariable, string(b))
	p := launch(s.t, name, filepath.Join(s.dir, name+".log"), cmd)
	s.notes[p] = c.Notes
	return p
}

// locks are the names that clients take. Some are prefixes of others.
func (c config) locks() []string {
	all := []string{"a", "a/b", "ab", "c", "d", "e", "ü", ".f", "g", "h", "i", "j"}
	if c.Locks > 0 {
		return all[:c.Locks]
	}
	return all
}
