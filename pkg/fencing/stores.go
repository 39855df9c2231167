package fencing

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
)

// DefaultMaxResources is the default limit of a [Memory].
const DefaultMaxResources = 100_000

// Memory is a [Store] in the memory of this process, for data that lasts only as long as the process. It is safe for
// concurrent use. After a restart the first token of a resource gets in, whichever it is, and replicas know only what
// they have seen. It never forgets a resource while it runs, because that would open the fence: a new resource beyond
// its limit is refused. While a handler does not return, newer tokens wait, and are refused when their time is up.
type Memory struct {
	limit int

	mu        sync.Mutex
	resources map[string]*resourceState
}

// resourceState has the newest token of a resource and the writes that are admitted to it.
type resourceState struct {
	newest int64         // greatest token that came in or waits
	inside int64         // token of the admitted writes
	writes int           // how many are admitted
	empty  chan struct{} // closed when the last of them leaves
}

// NewMemory returns a store of at most limit resources, [DefaultMaxResources] if limit is 0 or less. An entry takes
// about 200 bytes plus its name.
func NewMemory(limit int) *Memory {
	if limit <= 0 {
		limit = DefaultMaxResources
	}
	return &Memory{limit: limit, resources: map[string]*resourceState{}}
}

// Enter admits a write, see [Store].
func (m *Memory) Enter(ctx context.Context, resource string, token int64) (leave func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.resources[resource]
	if f == nil {
		if len(m.resources) >= m.limit {
			return nil, fmt.Errorf("fence %q: %w", resource, ErrTooManyResources)
		}
		f = &resourceState{}
		m.resources[resource] = f
	}
	for {
		if token < f.newest {
			return nil, &StaleError{Resource: resource, Token: token, Newest: f.newest}
		}
		// from now on older tokens are refused, even if this one gives up waiting
		f.newest = token
		if f.writes == 0 || f.inside == token {
			return m.admit(f, token), nil
		}
		if err := m.wait(ctx, f.empty); err != nil {
			return nil, fmt.Errorf("fence %q: wait until the write with token %d is over: %w", resource, f.inside, err)
		}
	}
}

// admit lets a write in. The caller holds mu.
func (m *Memory) admit(f *resourceState, token int64) (leave func()) {
	if f.writes == 0 {
		f.empty = make(chan struct{})
	}
	f.inside = token
	f.writes++
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if f.writes--; f.writes == 0 {
			close(f.empty)
		}
	})
}

// wait waits until empty is closed or ctx ends. The caller holds mu, which wait releases meanwhile.
func (m *Memory) wait(ctx context.Context, empty <-chan struct{}) error {
	m.mu.Unlock()
	defer m.mu.Lock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Execer is what [Exec] writes through, such as a *sql.DB, *sql.Tx or *sql.Conn.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Exec runs a statement that writes one row and contains its own fence: it writes the token, and only if the row has no
// greater one.
//
//	UPDATE books SET total = ?, token = ? WHERE id = ? AND token <= ?
//
// The error is an [ErrRefused] if no row was written: the row has a greater token or, with UPDATE, does not exist. It
// is another error if more than one row was written; if that can happen, run the statement in a transaction. The
// statement is sent unchanged; args must contain the token, because a fence that does not write it forgets. MySQL needs
// clientFoundRows=true in its driver.
func Exec(ctx context.Context, db Execer, token int64, query string, args ...any) error {
	if token <= 0 {
		return fmt.Errorf("write with token %d: %w", token, ErrNoToken)
	}
	if !slices.ContainsFunc(args, func(arg any) bool { return isToken(arg, token) }) {
		return fmt.Errorf("write with token %d: the statement has no such argument, so it fences nothing", token)
	}
	result, err := db.ExecContext(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("write with token %d: %w", token, err)
	}
	rows, err := result.RowsAffected()
	switch {
	case err != nil:
		return fmt.Errorf("write with token %d: count the written rows: %w", token, err)
	case rows == 0:
		return fmt.Errorf("write with token %d: %w: the row has a greater token, or does not exist", token, ErrRefused)
	case rows > 1:
		return fmt.Errorf("write with token %d: %d rows were written, but the fence is for one", token, rows)
	}
	return nil
}

// isToken reports whether arg is the token, bare or named.
func isToken(arg any, token int64) bool {
	if named, ok := arg.(sql.NamedArg); ok {
		arg = named.Value
	}
	return arg == any(token)
}
