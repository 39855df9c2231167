// Package metadata is the lock record of protocol version 1: its fields, its keys in etcd and its limits.
//
// A lock is held while its uuid key exists. Around that key lie the two deadlines, which the protocol acts on, and the
// metadata document, which people read. [Draft] builds the keys of a new record, [Decode] reads any keys back, whatever
// a client in whatever language wrote: what can not be read becomes a [Problem] of the record and never an error,
// because a reader that stops at a bad record hides all the others.
//
// [Layout] is the only place where keys are built and taken apart.
//
// The package is pure: no clock, no I/O, no etcd.
package metadata
