package access

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/clustermutex/unlocker/internal/text"
)

// Permission is something that a caller may do. All others need View too.
type Permission string

// The permissions.
const (
	View      Permission = "view"      // all pages but those below
	Backtrace Permission = "backtrace" // where in the code a lock was taken; may tell secrets
	Audit     Permission = "audit"     // what operators did to whose holds
	Unlock    Permission = "unlock"    // end the hold of somebody else
	Ask       Permission = "ask"       // ask a holder to finish
	Extend    Permission = "extend"    // give a holder more time
	Anybody   Permission = ""          // no permission is needed

	Acknowledge Permission = "acknowledge" // say that one looks at a lock
)

func permissions() []Permission {
	return []Permission{View, Backtrace, Audit, Unlock, Ask, Extend, Acknowledge}
}

// scope is between a permission and the owner for whose locks alone it is given: "unlock owner:billing".
const scope = " owner:"

// what is the permission without its scope.
func (p Permission) what() Permission {
	what, _, _ := strings.Cut(string(p), scope)
	return Permission(what)
}

// covers reports whether a permission with a scope is that one and is given for this owner.
func (p Permission) covers(what Permission, owner string) bool {
	have, pattern, scoped := strings.Cut(string(p), scope)
	return scoped && Permission(have) == what && text.Matches(pattern, owner)
}

// Permissions say who may do what. What is not said is denied.
type Permissions struct {
	Everyone []Permission            `yaml:"everyone"` // who has a name, whichever
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
	all := map[string][]Permission{"everyone": p.Everyone}
	for name, list := range p.Users {
		all["user "+name] = list
	}
	for name, list := range p.Groups {
		all["group "+name] = list
	}
	for who, list := range all {
		for _, one := range list {
			what, pattern, scoped := strings.Cut(string(one), scope)
			if scoped && (pattern == "" || len(pattern) > 100 || strings.Count(pattern, "*") > 2 ||
				what == string(View) || what == string(Audit)) {
				return fmt.Errorf("%s has the permission %q, but only backtrace, unlock, ask, extend and acknowledge "+
					"can be given for one owner, as in \"unlock owner:billing-*\"", who, one)
			}
			if !slices.Contains(permissions(), one.what()) {
				return fmt.Errorf("%s has the permission %q, but there are only view, backtrace, audit, unlock, "+
					"ask, extend and acknowledge", who, one)
			}
		}
		if len(list) > 0 && !slices.Contains(list, View) && !slices.Contains(p.Everyone, View) {
			return fmt.Errorf("%s has %s without view, which all others need", who, list[0])
		}
	}
	return nil
}

// grants are the permissions of a user.
func (p *Permissions) grants(name string, groups []string) []Permission {
	list := slices.Concat(p.Everyone, p.Users[name])
	for _, group := range groups {
		list = append(list, p.Groups[strings.TrimSpace(group)]...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// anyone reports whether anybody at all has the permission.
func (p *Permissions) anyone(may Permission) bool {
	given := func(one Permission) bool { return one.what() == may }
	if slices.ContainsFunc(p.Everyone, given) {
		return true
	}
	for _, who := range []map[string][]Permission{p.Users, p.Groups} {
		for _, list := range who {
			if slices.ContainsFunc(list, given) {
				return true
			}
		}
	}
	return false
}
