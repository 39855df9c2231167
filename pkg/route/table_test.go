package route_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/pkg/route"
)

func parse(t *testing.T, text string) route.Table {
	t.Helper()
	table, err := route.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestTableIsAskedForTheFirstSegment(t *testing.T) {
	table := parse(t, `
default: {cluster: eu-1}
routes:
  - {segment: shop, cluster: eu-2}
  - {segment: billing, cluster: eu-2, from: eu-1, move: 1, tokens-may-fall: true}
`)
	for lock, want := range map[string]route.Route{
		"shop/cart/1":     {Segment: "shop", Cluster: "eu-2"},
		"shop":            {Segment: "shop", Cluster: "eu-2"},
		"shopping/1":      {Segment: "shopping", Cluster: "eu-1"},
		"/shop":           {Cluster: "eu-1"},
		"billing/2026-08": {Segment: "billing", Cluster: "eu-2", From: "eu-1", Move: 1, TokensMayFall: true},
	} {
		if got, err := table.Of(lock); err != nil || got != want {
			t.Errorf("%s: %+v, %v", lock, got, err)
		}
	}
	table.Default = nil
	_, err := table.Of("shopping/1")
	if !errors.Is(err, route.ErrNoRoute) || !strings.Contains(err.Error(), `no route for the segment "shopping"`) {
		t.Errorf("a segment without a route: %v", err)
	}
}

func TestBadTableIsRefusedInOneSentence(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "neither routes nor a default",
		"routes: []":                             "neither routes nor a default",
		"- a":                                    "wrong kind",
		"rutes: []":                              `line 1: there is no key "rutes"`,
		"routes: [{segment: a, clutser: b}]":     `line 1: there is no key "clutser"`,
		"routes: [{segment: a, move: x}]":        "line 1: a value is of the wrong kind",
		"routes: [{cluster: a}]":                 "the route at place 1 has no segment",
		"routes: [{segment: a/b, cluster: a}]":   `"a/b" is no segment: a segment ends before the first slash`,
		`routes: [{segment: "a\n", cluster: a}]`: `"a\n" is no segment`,
		"routes: [{segment: a}]":                 `the route of "a" names no cluster`,
		"default: {move: 1}":                     "the default names no cluster",
		"default: {segment: a, cluster: b}":      `the default has the segment "a"`,
		"routes: [{segment: a, cluster: b}, {segment: a, cluster: b}]": `two routes for the segment "a"`,
		"routes: [{segment: a, cluster: b, from: b, move: 1}]":         `comes from the cluster "b" that it leads to`,
		"routes: [{segment: a, cluster: b, from: c}]":                  `comes from "c" but has no move`,
		"routes: [{segment: a, cluster: b, move: -1}]":                 "has the move -1",
		"default: {cluster: a}\n---\ndefault: {cluster: a}":            "more than one document",
	} {
		_, err := route.Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestTableFollowsAnother(t *testing.T) {
	for _, c := range []struct{ old, next, want string }{
		{"default: {cluster: a}", "{default: {cluster: a}, routes: [{segment: s, cluster: a}]}", ""},
		{"default: {cluster: a}", "{default: {cluster: a}, routes: [{segment: s, cluster: b, from: a, move: 1}]}", ""},
		{"routes: [{segment: s, cluster: b, from: a, move: 1}]", "routes: [{segment: s, cluster: b, move: 1}]", ""},
		{"routes: [{segment: s, cluster: b, from: a, move: 1}]",
			"routes: [{segment: s, cluster: a, from: b, move: 2}]", ""},
		{"default: {cluster: a}", "default: {cluster: b}", `the default goes from "a" to "b" without a move`},
		{"default: {cluster: a}", "{default: {cluster: a}, routes: [{segment: s, cluster: b}]}",
			`the segment "s" goes from "a" to "b" without a move`},
		{"{default: {cluster: a}, routes: [{segment: s, cluster: b, move: 1}]}", "default: {cluster: a}",
			`the segment "s" has the move 0, the table before had 1`},
		{"routes: [{segment: s, cluster: b}]", "routes: [{segment: t, cluster: b}]",
			`the segment "s" has no route any more`},
	} {
		err := parse(t, c.next).Follows(parse(t, c.old))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s after %s: %v, want %q", c.next, c.old, err, c.want)
		}
	}
}
