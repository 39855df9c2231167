package fencing_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/fencing"
	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// resource is something that holders of a lock write to.
type resource struct {
	name   string
	fenced bool
	write  func(l *mutex.Lock, text string) error
	read   func() string
}

// The story that Martin Kleppmann tells in "How to do distributed locking": a holder looks at its lock, stands still,
// loses the lock to another one that writes, wakes up and writes what it was about to. The lock cannot help, the fence
// does.
func TestLateWriteOfAPausedHolder(t *testing.T) {
	s := locktest.New(t)
	for _, r := range resources(t, s.Etcd()) {
		t.Run(r.name, func(t *testing.T) {
			paused := take(t, s, "paused", r.name)
			proctest.Must(t, paused.Context().Err())
			// Here the holder stands still: it has looked and sees nothing of what comes.
			s.ForceUnlock(r.name, "its machine does not answer") // which spares us to wait for an auto-unlock
			next := take(t, s, "next", r.name)
			proctest.Must(t, r.write(next, "next"))
			// It wakes up.
			err := r.write(paused, "late")
			if errors.Is(err, fencing.ErrRefused) != r.fenced || (err != nil) != r.fenced {
				t.Errorf("the late write: %v", err)
			}
			want := "late" // the harm that a fence is for
			if r.fenced {
				want = "next"
			}
			if got := r.read(); got != want {
				t.Errorf("%q was written last, want %q", got, want)
			}
			if err := r.write(next, "next again"); err != nil || r.read() != "next again" {
				t.Errorf("the holder goes on: %v, %q", err, r.read())
			}
			if err := next.Unlock(); err != nil {
				t.Errorf("the holder unlocks: %v", err)
			}
			if err := paused.Unlock(); !errors.Is(err, mutex.ErrNotHeld) {
				t.Errorf("the late one unlocks: %v", err)
			}
		})
	}
}

func resources(t *testing.T, etcd *clientv3.Client) []resource {
	t.Helper()
	s := serve(t)
	db := notes(t)
	return []resource{
		{"a page without a fence", false,
			func(l *mutex.Lock, text string) error { return put(s.url+"/open", l.Token(), text) }, s.open.read},
		{"a page behind a fence", true,
			func(l *mutex.Lock, text string) error { return put(s.url+"/fenced", l.Token(), text) }, s.fenced.read},
		{"a row without a fence", false, func(_ *mutex.Lock, text string) error {
			_, err := db.ExecContext(context.Background(), `UPDATE notes SET text = ? WHERE id = 1`, text)
			return err
		}, note(t, db, 1)},
		{"a row with a token", true, func(l *mutex.Lock, text string) error {
			return fencing.Exec(context.Background(), db, l.Token(),
				`UPDATE notes SET text = ?, token = ? WHERE id = 2 AND token <= ?`, text, l.Token(), l.Token())
		}, note(t, db, 2)},
		{"a key without a guard", false, func(_ *mutex.Lock, text string) error {
			_, err := etcd.Put(context.Background(), "/notes/1", text)
			return err
		}, key(t, etcd, "/notes/1")},
		{"a key with the guard of the lock", true, func(l *mutex.Lock, text string) error {
			r, err := etcd.Txn(context.Background()).If(l.Guard()).Then(clientv3.OpPut("/notes/2", text)).Commit()
			if err == nil && !r.Succeeded {
				return fencing.ErrRefused
			}
			return err
		}, key(t, etcd, "/notes/2")},
	}
}

func notes(t *testing.T) *sql.DB {
	t.Helper()
	db := open(t)
	execute(t, db, `CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL, token INTEGER NOT NULL)`)
	execute(t, db, `INSERT INTO notes VALUES (1, '', 0), (2, '', 0)`)
	return db
}

func note(t *testing.T, db *sql.DB, id int) func() string {
	return func() (text string) {
		if err := db.QueryRowContext(context.Background(), `SELECT text FROM notes WHERE id = ?`,
			id).Scan(&text); err != nil {
			t.Error(err)
		}
		return text
	}
}

func key(t *testing.T, etcd *clientv3.Client, key string) func() string {
	return func() string {
		r, err := etcd.Get(context.Background(), key)
		if err != nil || len(r.Kvs) != 1 {
			t.Error(err, r)
			return ""
		}
		return string(r.Kvs[0].Value)
	}
}
