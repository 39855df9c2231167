// Package locktest helps test programs that take locks. It runs an etcd inside the test, and plays the other processes,
// unlockers and operators.
//
//	server := locktest.New(t)
//	locks := server.Client(mutex.Options{Owner: "billing"})
//	go sendInvoices(ctx, locks)
//	server.AwaitHeld("invoices/2026-08")
//	server.ForceUnlock("invoices/2026-08", "wrong month")
//	// now sendInvoices must stop
//
// There are two kinds of etcd, with the same methods:
//
//   - [New] runs a real one in the test process. Its [Server.Endpoint] lets other processes use it.
//   - [NewInMemory] is for bubbles of testing/synctest, where time passes at once and sockets do not work:
//     time.Sleep(time.Hour) reaches a deadline of an hour. It is our own implementation: keys, transactions, watches
//     and leases behave as in a real etcd, against which a test compares them. It has no users, no space limit and no
//     failures except [Server.Disconnect].
//
// The lock client is the real one in both cases.
//
// Everything ends with the test. Failures are reported to the test that created the server, so call the methods from
// that test's goroutine. The package contains etcd's server: import it in tests only.
package locktest
