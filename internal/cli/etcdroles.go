package cli

import (
	"strings"

	"go.etcd.io/etcd/api/v3/authpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
)

// The etcd users of our programs; with client certificates, their common names.
const (
	unlockerUser  = "unlocker"
	dashboardUser = "mutexdash"
	witnessUser   = "unlocker-witness"
)

// rootName is the name of etcd's administrator, and of its role.
const rootName = "root"

// etcdRight is the permission of a role to read, or read and write, all keys with a prefix.
type etcdRight struct {
	area string
	kind clientv3.PermissionType
}

// kindName returns the kind of permission, as etcdctl spells it.
func (r etcdRight) kindName() string {
	return strings.ToLower(authpb.Permission_Type(r.kind).String())
}

type etcdRole struct {
	name   string
	rights []etcdRight
}

type etcdUser struct {
	name  string
	roles []string
}

// roleNames are the names of the roles of a prefix. Tests check that the documentation has the same.
type roleNames struct{ read, write, witness string }

func namesOfRoles(word string) roleNames {
	return roleNames{read: word + "-read", write: word + "-write", witness: word + "-witness"}
}

// etcdRoles returns the roles of a prefix.
func etcdRoles(l protocol.Layout, n roleNames, witness bool) []etcdRole {
	const readWrite = clientv3.PermissionType(clientv3.PermReadWrite)
	roles := []etcdRole{
		{n.write, []etcdRight{{l.Prefix(), readWrite}}},
		{n.read, []etcdRight{{l.Prefix(), clientv3.PermissionType(clientv3.PermRead)}}},
	}
	if witness {
		roles = append(roles, etcdRole{n.witness, []etcdRight{
			{l.Prefix() + ".deaths/", readWrite}, {l.Prefix() + ".suspicions/", readWrite},
		}})
	}
	return roles
}

// etcdUsers returns the users of our programs, and of the clients with these names.
func etcdUsers(n roleNames, witness, forceUnlock bool, clients []string) []etcdUser {
	users := []etcdUser{{unlockerUser, []string{n.write}}, {dashboardUser, []string{n.read}}}
	if forceUnlock {
		users[1].roles = []string{n.write}
	}
	if witness {
		users = append(users, etcdUser{witnessUser, []string{n.read, n.witness}})
	}
	for _, name := range clients {
		users = append(users, etcdUser{name, []string{n.write}})
	}
	return users
}
