package diagnosis_test

import (
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

type heldAttributes = map[string]map[string]any

func permits(n, limit any) map[string]any {
	return map[string]any{"kind": "semaphore", "permits": n, "limit": limit}
}

func TestInconsistenciesAreFound(t *testing.T) {
	reader := map[string]any{"kind": "shared"}
	for name, c := range map[string]struct {
		held   heldAttributes
		delays []metadata.LockDelay
		want   string
	}{
		"nothing is held":     {nil, nil, ""},
		"all permits are out": {heldAttributes{"p#1": permits(2., 3.), "p#2": permits(1., 3.)}, nil, ""},
		"one permit too many": {heldAttributes{"p#1": permits(2., 3.), "p#2": permits(2., 3.)}, nil,
			"p has 4 of 3 permits out"},
		"the limit was raised": {heldAttributes{"p#1": permits(3., 3.), "p#2": permits(2., 5.)}, nil, ""},
		"the limit was lowered": {heldAttributes{"p#1": permits(5., 5.), "p#2": permits(1., 3.)}, nil,
			"p has 6 of 5 permits out"},
		"nobody says the limit": {heldAttributes{"p#1": permits(9., nil)}, nil, ""},
		"as many as a number holds": {heldAttributes{"p#1": permits(9e18, 3.), "p#2": permits(9e18, 3.)}, nil,
			"p has 2000000000 of 3 permits out"},
		"readers": {heldAttributes{"d#1": reader, "d#2": reader}, nil, ""},
		"a plain holder beside permits": {heldAttributes{"p": nil, "p#1": permits(1., 3.)}, nil,
			"p is held as a whole beside 1 share"},
		"a writer beside readers": {heldAttributes{"d": {"kind": "exclusive"}, "d#1": reader, "d#2": reader}, nil,
			"d is held as a whole beside 2 shares"},
		"readers beside permits": {heldAttributes{"d#1": reader, "d#2": permits(1., 3.)}, nil,
			"d has permits out beside 1 reader"},
		"a lock that is called like a share": {heldAttributes{"build": nil, "build#7": nil}, nil, ""},
		"delays": {nil, []metadata.LockDelay{{Name: "z", Leased: true}, {Name: "b\n"}, {Name: "a", Unreadable: true}},
			`a has a lock delay without a lease, which stays until an operator ends it; ` +
				`b\n has a lock delay without a lease, which stays until an operator ends it`},
	} {
		var got []string
		var held []*metadata.Record
		for name, attributes := range c.held {
			held = append(held, &metadata.Record{Name: name, Token: 1, Attributes: attributes})
		}
		for _, l := range diagnosis.FindInconsistent(held, c.delays) {
			got = append(got, l.String())
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
