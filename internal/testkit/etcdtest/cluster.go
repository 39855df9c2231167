package etcdtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdembed"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// Main is for the TestMain of packages that use Cluster or Shared. If Cluster started this process, it runs an etcd
// member, otherwise the tests.
func Main(m *testing.M) {
	Member()
	proctest.Overlap()
	code := m.Run()
	stopShared()
	os.Exit(code)
}

// Member is the first half of Main, for a TestMain that does more than run tests. In a process that Cluster started it
// does not return.
func Member() {
	config, isMember := os.LookupEnv(etcdembed.MemberVariable)
	if !isMember {
		return
	}
	if err := member(config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// member runs until SIGTERM or the end of the test process.
func member(config string) error {
	var c etcdembed.Config
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	proctest.EndWithParent()
	etcd, err := etcdembed.Start(ctx, c)
	if err != nil {
		return err
	}
	defer etcd.Stop()
	fmt.Fprintln(os.Stdout, etcdembed.Ready)
	select {
	case <-ctx.Done():
		return nil
	case <-etcd.Done():
		return fmt.Errorf("member %s stopped by itself", c.Name)
	}
}

// Members is a cluster whose members are processes, numbered from 0. It is stopped at the end of the test.
type Members struct {
	t     testing.TB
	opts  options
	ca    *proctest.CA
	dir   string
	made  int // number of members ever created
	confs []etcdembed.Config
	// programs are the paths of the etcd programs that members run; empty for the embedded one.
	programs []string
	procs    []*proctest.Process
}

// Cluster starts n members and returns once all of them answer. The package's TestMain must call Main.
func Cluster(t testing.TB, n int, opts ...Option) *Members {
	t.Helper()
	m := &Members{t: t, opts: collect(opts), dir: t.TempDir(), programs: make([]string, n)}
	m.procs = make([]*proctest.Process, n)
	if m.opts.tls {
		m.ca = proctest.NewCA(t)
	}
	var peers []string
	for i := range n {
		c := m.config(t)
		m.confs, m.programs[i] = append(m.confs, c), m.opts.program
		peers = append(peers, c.Name+"=http://"+c.Peer)
	}
	t.Cleanup(m.end)
	for i := range m.confs {
		m.confs[i].Cluster = strings.Join(peers, ",")
		m.launch(i)
	}
	m.WaitReady(t)
	if m.opts.auth {
		enableAuth(t, m.Client(t))
		m.opts.users = true
	}
	return m
}

func (m *Members) config(t testing.TB) etcdembed.Config {
	t.Helper()
	m.made++
	return m.opts.config(t, m.ca, m.dir, fmt.Sprintf("m%d", m.made-1))
}

// Endpoints returns the members' URLs for clients.
func (m *Members) Endpoints() []string {
	var all []string
	for _, c := range m.confs {
		all = append(all, endpoint(c))
	}
	return all
}

// CA returns the authority that signed the members' certificates; nil without TLS.
func (m *Members) CA() *proctest.CA { return m.ca }

// Client returns a client of all members with all permissions, which is closed at the end of the test.
func (m *Members) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	return m.opts.client(t, m.ca, m.Endpoints()...)
}

// ClientOf returns a client of member i alone.
func (m *Members) ClientOf(t testing.TB, i int) *clientv3.Client {
	t.Helper()
	return m.opts.client(t, m.ca, m.Endpoints()[i])
}

// Kill kills member i, as kill -9 does. It can be restarted.
func (m *Members) Kill(i int) { m.procs[i].Kill() }

// Pause suspends the process of member i: its connections stay open but silent.
func (m *Members) Pause(i int) { m.procs[i].Pause() }

// Resume continues a paused member.
func (m *Members) Resume(i int) { m.procs[i].Resume() }

// Restart runs member i again with the same data and ports, after killing it if it is running. It returns when the
// member listens; WaitReady waits until it answers.
func (m *Members) Restart(i int) {
	m.t.Helper()
	m.Kill(i)
	m.launch(i)
	m.listens(i)
}

// PID returns the process id of member i.
func (m *Members) PID(i int) int { return m.procs[i].PID() }

// Upgrade restarts member i, which ran Program, with this test's own etcd on the same data.
func (m *Members) Upgrade(i int) {
	m.t.Helper()
	m.programs[i] = ""
	m.Restart(i)
}

// Leader returns the number of the leader. It waits for an election if there is none.
func (m *Members) Leader(t testing.TB) int {
	t.Helper()
	found := -1
	proctest.Eventually(t, "a leader", func() error {
		for i := range m.confs {
			s, err := m.status(t, i)
			if err == nil && s.Leader == s.Header.MemberId {
				found = i
				return nil
			}
		}
		return fmt.Errorf("none of %d members leads", len(m.confs))
	})
	return found
}

// WaitReady returns when every member that was not killed answers a linearizable read.
func (m *Members) WaitReady(t testing.TB) {
	t.Helper()
	for i, p := range m.procs {
		if s := p.State(); s != nil && s.ExitCode() < 0 {
			continue
		}
		c := m.ClientOf(t, i)
		eventually(t, "member "+m.confs[i].Name, func(ctx context.Context) error {
			if !p.Running() {
				t.Fatalf("member %s ended: %s (does TestMain call etcdtest.Main?)", m.confs[i].Name,
					strings.TrimSpace(p.Output()))
			}
			_, err := c.Get(ctx, "ready")
			return err
		})
		c.Close()
	}
}

func (m *Members) status(t testing.TB, i int) (*clientv3.StatusResponse, error) {
	c := m.ClientOf(t, i)
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return c.Status(ctx, m.Endpoints()[i])
}

func (m *Members) launch(i int) {
	m.t.Helper()
	p, err := launch(m.confs[i], m.programs[i])
	proctest.Must(m.t, err)
	m.procs[i] = p
}

func (m *Members) listens(i int) {
	m.t.Helper()
	eventually(m.t, "member "+m.confs[i].Name, func(context.Context) error { return listens(m.confs[i]) })
}

func (m *Members) end() {
	for _, p := range m.procs {
		if p != nil {
			p.Kill()
		}
	}
}

// eventually calls try with a short time limit until it returns nil.
func eventually(t testing.TB, what string, try func(context.Context) error) {
	t.Helper()
	proctest.Eventually(t, what, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		return try(ctx)
	})
}

// Replace removes member i from the cluster for good and adds a new one with number i, with other addresses and no
// data. It may take some seconds, because etcd refuses a change of members soon after another.
func (m *Members) Replace(t testing.TB, i int) {
	t.Helper()
	old := m.confs[i]
	next := m.config(t)
	c := m.ClientOf(t, (i+1)%len(m.confs))
	defer c.Close()
	eventually(t, "the removal of member "+old.Name, func(ctx context.Context) error {
		members, err := c.MemberList(ctx)
		if err != nil {
			return err
		}
		for _, member := range members.Members {
			if member.Name == old.Name {
				_, err = c.MemberRemove(ctx, member.ID)
			}
		}
		return err
	})
	m.Kill(i)
	m.add(t, c, &next, c.MemberAdd)
	m.confs[i], m.programs[i] = next, ""
	m.launch(i)
	m.WaitReady(t)
}

// AddLearner adds a member without a vote, which refuses nearly all requests, and returns its URL for clients.
func (m *Members) AddLearner(t testing.TB) string {
	t.Helper()
	c := m.ClientOf(t, 0)
	defer c.Close()
	conf := m.config(t)
	m.add(t, c, &conf, c.MemberAddAsLearner)
	p, err := launch(conf, "")
	proctest.Must(t, err)
	t.Cleanup(func() { p.Kill() })
	eventually(t, "learner "+conf.Name, func(context.Context) error { return listens(conf) })
	return endpoint(conf)
}

// add makes the member known to the cluster, which it then joins when it starts.
func (m *Members) add(t testing.TB, c *clientv3.Client, conf *etcdembed.Config,
	add func(ctx context.Context, peers []string) (*clientv3.MemberAddResponse, error)) {
	t.Helper()
	eventually(t, "the addition of member "+conf.Name, func(ctx context.Context) error {
		if _, err := add(ctx, []string{"http://" + conf.Peer}); err != nil &&
			!errors.Is(err, rpctypes.ErrPeerURLExist) {
			return err
		}
		members, err := c.MemberList(ctx)
		if err == nil {
			conf.Cluster = initialCluster(members.Members, conf.Name)
		}
		return err
	})
	conf.Joins = true
}

// initialCluster returns the initial cluster of a joining member. A member that was just added has no name yet.
func initialCluster(members []*pb.Member, name string) string {
	var peers []string
	for _, member := range members {
		if member.Name != "" {
			peers = append(peers, member.Name+"="+member.PeerURLs[0])
		} else {
			peers = append(peers, name+"="+member.PeerURLs[0])
		}
	}
	return strings.Join(peers, ",")
}
