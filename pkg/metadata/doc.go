// Package metadata is the lock record of protocol version 1: what it says, its limits, how it is written and read.
//
// A lock is held while its uuid key exists. Around that key lie the two deadlines, which the protocol acts on, and the
// metadata document, which people read. [Draft] builds the fields of a new record. [Decode] reads any fields back,
// whatever client wrote them: what cannot be read becomes a [Problem] of the record and never an error, because a
// reader that stops at a bad record hides all the others.
//
// The package is pure: no clock, no I/O, no etcd.
package metadata
