// Package metadata reads and writes the lock record of protocol version 1.
//
// A lock is held while its uuid key exists. Beside that key are the two deadlines, which the protocol acts on, and the
// metadata document, which is for display. [Draft] builds the fields of a new record. [Decode] reads any fields back,
// whatever client wrote them: what cannot be read becomes a [Problem] of the record and never an error, because a
// reader that stops at a bad record hides all the others.
//
// [States] and [Endings] are the words for what a lock is and how a hold ended, for all who speak of one.
//
// The package is pure: no clock, no I/O, no etcd.
package metadata
