// Package fencing keeps late writes of a former lock holder out of what the lock protects.
//
// A holder that stands still between its last look at the lock and its write, in a pause of its runtime or of its
// machine, may wake up when the lock is another's, and nothing on its side can keep the write from leaving. So the side
// that is written to checks: every hold has a token that is greater than that of all holds before it (Token of a lock
// of package mutex), each write carries it, and whoever has seen a greater one refuses.
//
// # Over HTTP
//
// The client's [Transport] sends the token of the request's context:
//
//	client := &http.Client{Transport: &fencing.Transport{}}
//	ctx := fencing.NewContext(lock.Context(), lock.Token())
//	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, body)
//
// The server's [Fence] stands around the handlers that write:
//
//	fence := fencing.Fence{Store: fencing.NewMemory(0), Resource: fencing.Named("books")}
//	mux.Handle("PUT /books", fence.Handler(books))
//
// # In a database
//
// The token is a column, and is compared and written by the statement that does the work, see [Exec]:
//
//	err := fencing.Exec(ctx, db, token, `UPDATE books SET total = ?, token = ? WHERE id = ? AND token <= ?`, total, token, id, token)
//
// A handler that writes to a database wants [Carry] instead of a Fence: it takes the token from the request and leaves
// the check to the statement, which survives restarts and holds for all replicas.
//
// # In the same etcd
//
// Nothing of this is needed: put the Guard of the lock among the compares of your transaction.
//
// # What to know
//
//   - Tokens of different locks must not be compared. Give each lock a resource, a row or a column of its own.
//   - Who may send a token may send a greatest one, and shut everybody else out. Authenticate first.
//   - Among writes with the same token, which come from one holder, nothing is ordered.
//   - A fence that forgets lets late writes in: see [Memory] for what it does not survive.
//   - After etcd was restored from a backup tokens may start again lower; everything is refused until its revision was
//     raised.
package fencing
