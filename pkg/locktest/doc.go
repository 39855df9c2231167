// Package locktest is for tests of programs that take locks. It runs an etcd inside the test, and does to the locks
// what other people and machines do.
//
//	server := locktest.New(t)
//	locks := server.Client(mutex.Options{Owner: "billing"})
//	go sendInvoices(ctx, locks)
//	server.AwaitHeld("invoices/2026-08")
//	server.ForceUnlock("invoices/2026-08", "wrong month")
//	// now sendInvoices must stop
//
// There are two kinds of etcd, with the same verbs:
//
//   - [New] runs a real one, in the process of the test. It has an [Server.Endpoint], so that other processes can use
//     it.
//   - [NewInMemory] is for bubbles of testing/synctest, where time passes at once and sockets do not work: a deadline
//     of an hour is reached with time.Sleep(time.Hour). It is this module's own, held against a real one by a test:
//     keys, transactions, watches and leases are the same. It has no users, no limit of space and no failures but
//     [Server.Cut].
//
// The lock client is the real one in both cases. There is no fake of it: what makes tests of locks worth their time is
// what the client does when the lock is lost, and a fake would do what its author expected.
//
// What is to be simulated:
//
//   - somebody else holds the lock: [Server.Hold]
//   - it is lost in the middle: [Server.ForceUnlock] and [Server.Expire]
//   - etcd is away: [Server.Cut] and [Server.Heal]
//   - time passes: [NewInMemory] and time.Sleep in a bubble
//
// Everything ends with the test. Failures are those of the test that made the server, so call the methods from its
// goroutine.
//
// The package contains etcd's server: import it in tests only.
package locktest
