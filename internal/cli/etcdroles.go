package cli

import (
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

type etcdRole struct {
	name   string
	rights []etcdRight
}

type etcdUser struct {
	name  string
	roles []string
}

// The roles of a prefix, after the --role-prefix. Tests check that the documentation has the same.
const (
	readRole    = "-read"
	writeRole   = "-write"
	witnessRole = "-witness"
)

// etcdRoles returns the roles of a prefix of locks, whose names begin with a word.
func etcdRoles(l protocol.Layout, word string, witness bool) []etcdRole {
	const readWrite = clientv3.PermissionType(clientv3.PermReadWrite)
	roles := []etcdRole{
		{word + writeRole, []etcdRight{{l.Prefix(), readWrite}}},
		{word + readRole, []etcdRight{{l.Prefix(), clientv3.PermissionType(clientv3.PermRead)}}},
	}
	if witness {
		roles = append(roles, etcdRole{word + witnessRole, []etcdRight{
			{l.Prefix() + ".deaths/", readWrite}, {l.Prefix() + ".suspicions/", readWrite},
		}})
	}
	return roles
}

// etcdUsers returns the users of our programs, and of the clients with these names.
func etcdUsers(word string, witness, forceUnlock bool, clients []string) []etcdUser {
	users := []etcdUser{{unlockerUser, []string{word + writeRole}}, {dashboardUser, []string{word + readRole}}}
	if forceUnlock {
		users[1].roles = []string{word + writeRole}
	}
	if witness {
		users = append(users, etcdUser{witnessUser, []string{word + readRole, word + witnessRole}})
	}
	for _, name := range clients {
		users = append(users, etcdUser{name, []string{word + writeRole}})
	}
	return users
}
