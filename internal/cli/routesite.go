package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/lockstore"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/route"
)

// routeSites are connections to the clusters that a table names.
type routeSites struct {
	app  *app
	open map[string]*session
}

// at returns the connection to a cluster in the file of clusters, which has answered.
func (r *routeSites) at(ctx context.Context, name string) (*session, error) {
	if s := r.open[name]; s != nil {
		return s, nil
	}
	list, file, err := r.app.clusters.read()
	if err != nil {
		return nil, &statusError{ExitUsage, err}
	}
	c, err := clusterNamed(list, name, file)
	if err != nil {
		return nil, &statusError{ExitUsage, err}
	}
	if err := c.Check(*r.app.etcd); err != nil {
		return nil, &statusError{ExitUsage, err}
	}
	layout, err := protocol.NewLayout(c.Prefix)
	if err != nil {
		return nil, &statusError{ExitUsage, err}
	}
	log := r.app.log()
	client, err := etcdconn.New(c.Settings(*r.app.etcd), log)
	if err != nil {
		return nil, err
	}
	s := &session{app: r.app, log: log, client: client, layout: layout,
		store: lockstore.New(client, layout, lockstore.WithLog(log))}
	if err := s.check(ctx); err != nil {
		s.close()
		return nil, fmt.Errorf("cluster %s: %w", name, err)
	}
	if r.open == nil {
		r.open = map[string]*session{}
	}
	r.open[name] = s
	return s, nil
}

func (r *routeSites) close() {
	for _, s := range r.open {
		s.close()
	}
}

// segmentState is what a cluster has of a segment.
type segmentState struct {
	held     []*metadata.Record
	claims   []*route.Claim
	waiters  int
	beside   int // periods and tasks, which a move does not carry
	revision int64
}

// segment reads what the cluster has of a segment.
func (s *session) segment(ctx context.Context, segment string) (*segmentState, error) {
	state := &segmentState{}
	claimed := map[string]bool{}
	var err error
	state.revision, err = s.store.Records(ctx, segment, func(r *metadata.Record) bool {
		switch claim := route.ClaimOf(r); {
		case route.Segment(r.Queue()) != segment || r.Token == 0:
		case claim != nil:
			state.claims = append(state.claims, claim)
			claimed[r.UUID] = true
		default:
			state.held = append(state.held, r)
		}
		return true
	})
	if err != nil {
		return nil, s.explain(ctx, "read the locks of "+text.Visible(segment), err)
	}
	for _, area := range []string{s.layout.Queues(), s.layout.Periods(), s.layout.AllTasks()} {
		err := s.store.ListPrefix(ctx, area+protocol.EncodeName(segment), 0, func(kv protocol.KV) {
			switch key := s.layout.Parse(kv.Key); {
			case route.Segment(key.Lock) != segment:
			case key.Kind == protocol.KindTicket && !claimed[key.ID]:
				state.waiters++
			case key.Kind == protocol.KindPeriod, key.Kind == protocol.KindTask:
				state.beside++
			}
		})
		if err != nil {
			return nil, s.explain(ctx, "read what is beside the locks of "+text.Visible(segment), err)
		}
	}
	return state, nil
}

// busy says what keeps a segment from leaving a cluster for good; empty: nothing.
func (s *segmentState) busy() string {
	var parts []string
	if len(s.held) > 0 {
		parts = append(parts, fmt.Sprintf("%s held, such as %s by %s", count(len(s.held), "lock"),
			text.Visible(s.held[0].Name), orNone(shortText(s.held[0].Owner))))
	}
	if s.waiters > 0 {
		parts = append(parts, count(s.waiters, "waiter"))
	}
	return strings.Join(parts, ", ")
}
