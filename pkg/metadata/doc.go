// Package metadata reads and writes the lock record of protocol version 1.
//
// A lock is held while its uuid key exists. Next to that key are the two deadlines, which the protocol acts on, and the
// metadata document, which is for display. [Draft] builds the fields of a new record. [Decode] reads the fields back,
// whichever client wrote them: what cannot be read becomes a [Problem] of the record, never an error, because a reader
// that stops at a bad record hides all the others.
//
// [States] and [Endings] define the words for the state of a lock and for how a hold ended.
//
// The package is pure: no clock, no I/O, no etcd.
package metadata
