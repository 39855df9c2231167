package route

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// Options are the optional settings of a [Client].
type Options struct {
	Logger *slog.Logger // logs tables that cannot be used; nil logs nothing
}

// Client takes locks in the clusters where the table says they are. It is safe for concurrent use.
type Client struct {
	source   Source
	clusters map[string]cluster
	log      *slog.Logger
	claims   cache
	stop     context.CancelFunc
	closed   <-chan struct{}
	ended    chan struct{}

	reading sync.Mutex // one reading of the table at a time
	mu      sync.Mutex
	known   *version
	err     error
}

// cluster is one of those that the table may name.
type cluster struct {
	name   string
	locks  *mutex.Client
	layout protocol.Layout
}

// version is the table as last read.
type version struct {
	text    string
	table   Table
	changed chan struct{} // is closed when there is another
}

// New returns a client of the locks in several clusters, each with its name in the table and the client for its locks,
// whose options count. It reads the table and sends etcd nothing. The clients stay the caller's: close them after this
// one.
//
// If the table changes to one that cannot be used, the last one stays in force, and [Client.Err] says why.
func New(table Source, clusters map[string]*mutex.Client, o Options) (*Client, error) {
	if table.read == nil {
		return nil, errors.New("route: no table was given")
	}
	c := &Client{source: table, log: o.Logger, clusters: map[string]cluster{}, ended: make(chan struct{})}
	for name, locks := range clusters {
		if locks == nil {
			return nil, fmt.Errorf("route: cluster %q has no client", name)
		}
		layout, err := protocol.NewLayout(locks.Options().Prefix)
		if err != nil {
			return nil, fmt.Errorf("route: cluster %q: %w", name, err)
		}
		c.clusters[name] = cluster{name, locks, layout}
	}
	ctx, stop := context.WithCancel(context.Background())
	if err := c.Reload(ctx); err != nil {
		stop()
		return nil, fmt.Errorf("route: %w", err)
	}
	c.stop = stop
	c.closed = ctx.Done()
	go func() {
		defer close(c.ended)
		table.follow(ctx, c.Reload)
	}()
	return c, nil
}

// Close ends the reading of the table. Locks that are held stay so.
func (c *Client) Close() {
	c.stop()
	<-c.ended
}

// Table returns the table in force.
func (c *Client) Table() Table { return c.version().table }

// Err returns why the table as it is now cannot be used, nil if it is the one in force.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Reload reads the table now. If it cannot be used, the last one stays in force.
func (c *Client) Reload(ctx context.Context) error {
	c.reading.Lock()
	defer c.reading.Unlock()
	text, err := c.source.read(ctx)
	if err == nil {
		if old := c.version(); old != nil && old.text == string(text) {
			c.failed(nil)
			return nil
		}
		err = c.use(text)
	}
	if ctx.Err() == nil {
		c.failed(err)
	}
	return err
}

func (c *Client) use(text []byte) error {
	t, err := Parse(text)
	if err != nil {
		return fmt.Errorf("the table of routes: %w", err)
	}
	if err := t.names(slices.Sorted(maps.Keys(c.clusters))); err != nil {
		return fmt.Errorf("the table of routes: %w", err)
	}
	old := c.version()
	if old != nil {
		if err := t.Follows(old.table); err != nil {
			return fmt.Errorf("the table of routes: %w", err)
		}
	}
	c.mu.Lock()
	c.known = &version{string(text), t, make(chan struct{})}
	c.mu.Unlock()
	if old != nil {
		close(old.changed)
	}
	return nil
}

// names returns a sentence if the table names a cluster that is not one of these.
func (t Table) names(known []string) error {
	all := t.Routes
	if t.Default != nil {
		all = append([]Route{*t.Default}, all...)
	}
	for _, r := range all {
		for _, name := range []string{r.Cluster, r.From} {
			if name == "" || slices.Contains(known, name) {
				continue
			}
			about := fmt.Sprintf("the route of %q", r.Segment)
			if r.Segment == "" {
				about = "the default"
			}
			return fmt.Errorf("%s names the cluster %q, there are %s", about, name, strings.Join(known, ", "))
		}
	}
	return nil
}

// failed keeps why the table cannot be used, and logs it once.
func (c *Client) failed(err error) {
	c.mu.Lock()
	news := err != nil && (c.err == nil || c.err.Error() != err.Error())
	c.err = err
	c.mu.Unlock()
	if news && c.log != nil {
		c.log.Error("the table of routes cannot be used, the last one stays in force", "error", err)
	}
}

func (c *Client) version() *version {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}
