// Package fencing_test holds pkg/fencing to real writes that come too late: of processes that stand still, over HTTP,
// to a database and to etcd.
package fencing_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/fencing"
)

const (
	update = `UPDATE books SET total = ?, token = ? WHERE id = ? AND token <= ?`
	upsert = `INSERT INTO books (id, total, token) VALUES (?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET total = excluded.total, token = excluded.token
		WHERE books.token <= excluded.token`
)

// open returns a database with one row: the books of "may", 100, written with token 5.
func open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "db")+
		"?_pragma=busy_timeout(30000)&_pragma=synchronous(0)&_txlock=immediate")
	proctest.Must(t, err)
	t.Cleanup(func() { db.Close() })
	execute(t, db, `CREATE TABLE books (id TEXT PRIMARY KEY, total INTEGER NOT NULL, token INTEGER NOT NULL)`)
	execute(t, db, `INSERT INTO books VALUES ('may', 100, 5)`)
	return db
}

func execute(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(context.Background(), query, args...)
	proctest.Must(t, err)
}

func total(t testing.TB, db *sql.DB, id string) (total, token int64) {
	t.Helper()
	row := db.QueryRowContext(context.Background(), `SELECT total, token FROM books WHERE id = ?`, id)
	proctest.Must(t, row.Scan(&total, &token))
	return total, token
}

func TestStatementThatCarriesItsFence(t *testing.T) {
	for _, c := range []struct {
		name         string
		query        string
		args         []any
		token        int64
		refused      bool
		total, after int64
	}{
		{"the same holder", update, []any{200, int64(5), "may", int64(5)}, 5, false, 200, 5},
		{"the same write again", update, []any{100, int64(5), "may", int64(5)}, 5, false, 100, 5},
		{"a newer holder", update, []any{200, int64(6), "may", int64(6)}, 6, false, 200, 6},
		{"a former holder", update, []any{200, int64(4), "may", int64(4)}, 4, true, 100, 5},
		{"a row that is not there", update, []any{200, int64(6), "june", int64(6)}, 6, true, 100, 5},
		{"numbered placeholders", `UPDATE books SET total = $1, token = $2 WHERE id = $3 AND token <= $2`,
			[]any{200, int64(6), "may"}, 6, false, 200, 6},
		{"named placeholders, too old",
			`UPDATE books SET total = :total, token = :token WHERE id = :id AND token <= :token`,
			[]any{sql.Named("total", 200), sql.Named("token", int64(4)), sql.Named("id", "may")}, 4, true, 100, 5},
		{"insert or update by a newer holder", upsert, []any{"may", 200, int64(6)}, 6, false, 200, 6},
		{"insert or update by a former holder", upsert, []any{"may", 200, int64(4)}, 4, true, 100, 5},
		{"insert", upsert, []any{"june", 200, int64(4)}, 4, false, 100, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := open(t)
			err := fencing.Exec(t.Context(), db, c.token, c.query, c.args...)
			if errors.Is(err, fencing.ErrRefused) != c.refused || (err != nil) != c.refused {
				t.Errorf("got %v", err)
			}
			if now, token := total(t, db, "may"); now != c.total || token != c.after {
				t.Errorf("the row has %d by %d", now, token)
			}
		})
	}
}

// transact commits what f does, or takes it back.
func transact(t testing.TB, db *sql.DB, f func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func TestStatementOnSeveralRowsIsRolledBack(t *testing.T) {
	db := open(t)
	execute(t, db, `INSERT INTO books VALUES ('june', 100, 5)`)
	err := transact(t, db, func(tx *sql.Tx) error {
		const all = `UPDATE books SET total = 0, token = ? WHERE token <= ?`
		return fencing.Exec(t.Context(), tx, 6, all, int64(6), int64(6))
	})
	if err == nil || errors.Is(err, fencing.ErrRefused) {
		t.Errorf("got %v", err)
	}
	if now, _ := total(t, db, "may"); now != 100 {
		t.Errorf("the row has %d", now)
	}
}
