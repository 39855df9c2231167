package fencing

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
)

// Execer is what [Exec] writes through, such as a *sql.DB, *sql.Tx or *sql.Conn.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Exec runs a statement that writes one row and contains its own fence: it writes the token, and only if the row has no
// greater one.
//
//	UPDATE books SET total = ?, token = ? WHERE id = ? AND token <= ?
//	UPDATE books SET total = $1, token = $2 WHERE id = $3 AND token <= $2
//	INSERT INTO books (id, total, token) VALUES (?, ?, ?)
//	    ON CONFLICT (id) DO UPDATE SET total = excluded.total, token = excluded.token
//	    WHERE books.token <= excluded.token
//
// The error is an [ErrRefused] if no row was written: the row has a greater token or, with UPDATE, does not exist. It
// is another error if more than one row was written; if that can happen, run the statement in a transaction. The
// statement is sent unchanged, with the placeholders of the database; args must contain the token, because a fence that
// does not write it forgets.
//
// To fence a transaction of several statements, begin it with such an UPDATE of the row that keeps this lock's token.
// Other writers of that row then wait until the transaction ends.
//
// MySQL reports rows that were changed, not rows that were found, so a repeated write would look refused: set
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
