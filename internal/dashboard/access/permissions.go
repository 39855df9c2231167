package access

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/clustermutex/unlocker/internal/text"
)

// Permission is something that a caller may do. All others need View too.
type Permission string

// The permissions.
const (
	View      Permission = "view"      // all pages but those below
	Backtrace Permission = "backtrace" // where in the code a lock was taken; may tell secrets
	Audit     Permission = "audit"     // what operators did to whose holds
	Unlock    Permission = "unlock"    // end another's hold
	Ask       Permission = "ask"       // ask a holder to finish
	Extend    Permission = "extend"    // give a holder more time
	Anybody   Permission = ""          // no permission is needed

	Acknowledge Permission = "acknowledge" // announce that one is looking at a lock
)

func permissions() []Permission {
	return []Permission{View, Backtrace, Audit, Unlock, Ask, Extend, Acknowledge}
}

// ownerPrefix limits a permission to the locks of some owners: "unlock owner:billing-*".
const ownerPrefix = "owner:"

func (p Permission) withoutOwner() Permission {
	what, _, _ := strings.Cut(string(p), " ")
	return Permission(what)
}

// owner returns the pattern of the owners to whose locks the permission is limited; ok is false if it is not.
func (p Permission) owner() (pattern string, ok bool) {
	_, pattern, ok = strings.Cut(string(p), " "+ownerPrefix)
	return pattern, ok
}

// covers reports whether a permission with an owner is that one and is given for this owner.
func (p Permission) covers(what Permission, owner string) bool {
	pattern, limited := p.owner()
	return limited && p.withoutOwner() == what && text.Globs{pattern}.Match(owner)
}

// check returns an error for an unknown permission, and for a limit to owners that cannot apply.
func (p Permission) check() error {
	pattern, limited := p.owner()
	written := p.withoutOwner()
	if limited {
		written += Permission(" " + ownerPrefix + pattern)
	}
	switch {
	case !slices.Contains(permissions(), p.withoutOwner()):
		return fmt.Errorf("has the permission %q, but there are only view, backtrace, audit, unlock, ask, "+
			"extend and acknowledge", p)
	case limited && (p.withoutOwner() == View || p.withoutOwner() == Audit):
		return fmt.Errorf("has the permission %q, but only backtrace, unlock, ask, extend and acknowledge can "+
			"be given for one owner, as in \"unlock owner:billing-*\"", p)
	case written != p, limited && (pattern == "" || len(pattern) > 100 || strings.Count(pattern, "*") > 2):
		return fmt.Errorf("has the permission %q, which should be like \"unlock owner:billing-*\"", p)
	}
	return nil
}

// Permissions say who may do what. What is not said is denied.
type Permissions struct {
	Everyone []Permission            `yaml:"everyone"` // every caller with a name
	Users    map[string][]Permission `yaml:"users"`
	Groups   map[string][]Permission `yaml:"groups"`
}

// ParsePermissions reads the permissions file, which is YAML:
//
//	everyone: [view]
//	users:
//	  ann@example.org: [view, backtrace, audit, unlock, ask, extend, acknowledge]
//	groups:
//	  on-call: [view, backtrace, unlock, ask, extend, acknowledge]
//	  team-billing: [view, backtrace owner:billing-*, unlock owner:billing-*]
func ParsePermissions(file []byte) (*Permissions, error) {
	var p Permissions
	decoder := yaml.NewDecoder(bytes.NewReader(file))
	decoder.KnownFields(true)
	if err := decoder.Decode(&p); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one document")
	}
	return &p, p.check()
}

func (p *Permissions) check() error {
	isView := func(p Permission) bool { return p.withoutOwner() == View }
	all := map[string][]Permission{"everyone": p.Everyone}
	for name, list := range p.Users {
		if _, why := usableName(name); why != "" {
			return fmt.Errorf("no caller can be the user %q", name)
		}
		all["user "+name] = list
	}
	for name, list := range p.Groups {
		switch {
		case strings.Contains(name, ","):
			return fmt.Errorf("no caller can be in the group %q: in the header, commas separate groups. Have the "+
				"proxy send names without, such as the cn of an LDAP group", name)
		case name == "" || strings.TrimSpace(name) != name:
			return fmt.Errorf("no caller can be in the group %q: blanks around a group do not count", name)
		}
		all["group "+name] = list
	}
	for who, list := range all {
		for _, one := range list {
			if err := one.check(); err != nil {
				return fmt.Errorf("%s %w", who, err)
			}
		}
		if len(list) > 0 && !slices.ContainsFunc(slices.Concat(list, p.Everyone), isView) {
			return fmt.Errorf("%s has %s without view, which all others need", who, list[0])
		}
	}
	return nil
}

func (p *Permissions) all() []Permission {
	lists := [][]Permission{p.Everyone}
	for _, who := range []map[string][]Permission{p.Users, p.Groups} {
		lists = slices.AppendSeq(lists, maps.Values(who))
	}
	return slices.Concat(lists...)
}

func (p *Permissions) grants(name string, groups []string) []Permission {
	list := slices.Concat(p.Everyone, p.Users[name])
	for _, group := range groups {
		list = append(list, p.Groups[group]...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func (p *Permissions) grantsAnyone(may Permission) bool {
	return slices.ContainsFunc(p.all(), func(one Permission) bool { return one.withoutOwner() == may })
}
