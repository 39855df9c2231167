// Package etcdembed runs an etcd member in this process. It is the only package that imports etcd's server: tests use
// it through etcdtest, and mutexdev is the only program that contains it, so that the production binaries stay small.
//
// With the build tag etcdprocess, a member is a process of a program that was built without the tag. It is for the race
// detector, which would make etcd many times slower and find nothing in our code.
package etcdembed

import "go.uber.org/zap"

const (
	// MemberVariable is the environment variable that passes a Config to a process that runs a member.
	MemberVariable = "ETCDTEST_MEMBER"
	// Ready is what that process prints once the member serves clients.
	Ready = "ready"
)

// Config describes a member. It can be passed as JSON, so that another process can run it.
type Config struct {
	Name   string // default "default"
	Dir    string // data directory; created if missing, kept
	Client string // host:port to serve clients on
	Peer   string // host:port to serve the other members on
	// Cluster is etcd's --initial-cluster, name=url,name=url. Empty: a cluster of one.
	Cluster string
	Joins   bool // the cluster is running, and this member has been added to it

	Cert, Key string // files; if given, clients are served with TLS
	ClientCA  string // file; if given, clients need a certificate signed by it

	Quota    int64 // bytes that the store may grow to; 0 is etcd's default
	TokenTTL uint  // seconds that an unused login token lives; 0 is etcd's default
	// Throwaway trades the safety of the data for speed: no fsync, cheap password hashes. For tests only.
	Throwaway bool
	Fsync     bool // wait for the disk even with Throwaway
	Gateway   bool // serve the JSON gateway, too, as etcd does by default

	Log *zap.Logger `json:"-"` // nil is silence
}
