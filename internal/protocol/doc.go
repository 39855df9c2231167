// Package protocol is the wire format of the lock protocol around the record: where every key lies, the documents below
// the dotted areas, and how long each of them stays. What a record says is package metadata.
//
// [Layout] is the only place where keys are built and taken apart.
//
// The package is pure: no clock, no I/O, no etcd.
package protocol
