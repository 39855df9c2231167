//go:build etcdprocess

package etcdembed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// Program returns the path of the program that runs members, which was built from test/etcdserver.
func Program() string { return os.Getenv("ETCDTEST_SERVER") }

// Server is a running member.
type Server struct{ process *proctest.Process }

// Start runs a member and returns when it serves clients. ctx bounds the waiting, not the life of the member. One that
// is killed before it has written its first entries would never have a leader again.
func Start(ctx context.Context, c Config) (*Server, error) {
	if Program() == "" {
		return nil, errors.New("ETCDTEST_SERVER does not name the program that runs etcd: use make race")
	}
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(Program())
	cmd.Env = append(os.Environ(), MemberVariable+"="+string(config))
	p, err := proctest.Launch(cmd)
	if err != nil {
		return nil, err
	}
	for ctx.Err() == nil && p.Running() {
		if strings.Contains(p.Output(), Ready) {
			return &Server{p}, nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	p.Kill()
	return nil, fmt.Errorf("start etcd on %s: %s", c.Client, p.Output())
}

// Done returns a channel that is closed when the member has ended, for whatever reason.
func (s *Server) Done() <-chan struct{} { return s.process.Done() }

// Stop ends the member.
func (s *Server) Stop() { s.process.Kill() }
