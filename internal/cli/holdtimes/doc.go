// Package holdtimes reads from the past of etcd's keys how long locks were held and waited for, and which deadlines
// that suggests. It is pure: its callers read etcd.
//
// A revision of etcd has no time. The presence records of unlockers do, and each writes one a second: so a hold that
// began and ended between two of them lasted no longer than they are apart. Both are read from the clock of the same
// unlocker, and no other clock counts, except for a hold that began before the past that etcd has: that began when its
// holder says so.
package holdtimes
