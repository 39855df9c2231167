// Package fencing keeps late writes of a former lock holder out of what the lock protects.
//
// A holder may pause between checking its lock and writing, for a garbage collection or with its machine, and resume
// when another holds the lock. Nothing on its side can stop the write then. So the side that is written to checks:
// every hold has a token that is greater than those of all earlier holds (Token of a lock of package mutex), each write
// carries it, and a resource that has seen a greater token refuses the write.
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
//	err := fencing.Exec(ctx, db, token,
//		`UPDATE books SET total = ?, token = ? WHERE id = ? AND token <= ?`, total, token, id, token)
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
//   - A caller may send the greatest possible token and shut everybody else out. Authenticate first.
//   - Writes with the same token, which come from one holder, are not ordered.
//   - A fence that forgets lets late writes in: see [Memory] for what it does not survive.
//   - After etcd was restored from a backup, tokens may be lower than before; all writes are refused until its revision
//     is raised.
package fencing
