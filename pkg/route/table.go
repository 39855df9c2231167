package route

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Table says which cluster has the locks of each segment.
type Table struct {
	Default *Route  `yaml:"default,omitempty"` // of segments without a route, nil: they are refused
	Routes  []Route `yaml:"routes,omitempty"`
}

// Route is where the locks of a segment are.
type Route struct {
	Segment string `yaml:"segment,omitempty"` // the names up to the first slash; empty only in the default
	Cluster string `yaml:"cluster"`
	From    string `yaml:"from,omitempty"` // the cluster that the segment comes from, until its move is finished
	Move    int    `yaml:"move,omitempty"` // how many moves there were; grows with each
	// TokensMayFall lets fencing tokens begin again lower in the new cluster: no resource checks them.
	TokensMayFall bool `yaml:"tokens-may-fall,omitempty"`
}

// Segment is the part of a lock's name that decides on its route.
func Segment(lock string) string {
	segment, _, _ := strings.Cut(lock, "/")
	return segment
}

// Parse reads a table. The error is one sentence.
func Parse(text []byte) (Table, error) {
	var t Table
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&t); err != nil && !errors.Is(err, io.EOF) {
		return Table{}, sentence(err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return Table{}, errors.New("there is more than one document")
	}
	return t, t.Check()
}

// sentence is an error of the decoder without the names of our types.
func sentence(err error) error {
	var wrong *yaml.TypeError
	if !errors.As(err, &wrong) || len(wrong.Errors) == 0 {
		return err
	}
	line, rest, _ := strings.Cut(wrong.Errors[0], ": ")
	if field, found := strings.CutPrefix(rest, "field "); found {
		key, _, _ := strings.Cut(field, " ")
		return fmt.Errorf("%s: there is no key %q", line, key)
	}
	return fmt.Errorf("%s: a value is of the wrong kind", line)
}

// Check returns one sentence about what is wrong with the table, nil if nothing is.
func (t Table) Check() error {
	if t.Default == nil && len(t.Routes) == 0 {
		return errors.New("it has neither routes nor a default")
	}
	if t.Default != nil {
		if t.Default.Segment != "" {
			return fmt.Errorf("the default has the segment %q: it is for all that have no route", t.Default.Segment)
		}
		if err := t.Default.check(); err != nil {
			return fmt.Errorf("the default %w", err)
		}
	}
	seen := map[string]bool{}
	for i, r := range t.Routes {
		switch {
		case r.Segment == "":
			return fmt.Errorf("the route at place %d has no segment", i+1)
		case strings.Contains(r.Segment, "/"):
			return fmt.Errorf("%q is no segment: a segment ends before the first slash", r.Segment)
		case metadata.CheckName(r.Segment) != nil:
			return fmt.Errorf("%q is no segment: %w", r.Segment, metadata.CheckName(r.Segment))
		case seen[r.Segment]:
			return fmt.Errorf("there are two routes for the segment %q", r.Segment)
		}
		seen[r.Segment] = true
		if err := r.check(); err != nil {
			return fmt.Errorf("the route of %q %w", r.Segment, err)
		}
	}
	return nil
}

func (r Route) check() error {
	switch {
	case r.Cluster == "":
		return errors.New("names no cluster")
	case r.Move < 0:
		return fmt.Errorf("has the move %d: moves count from 1", r.Move)
	case r.From == r.Cluster:
		return fmt.Errorf("comes from the cluster %q that it leads to", r.From)
	case r.From != "" && r.Move == 0:
		return fmt.Errorf("comes from %q but has no move: number the moves of a segment from 1", r.From)
	}
	return nil
}

// Of returns the route of a lock. The error is a [*NoRouteError].
func (t Table) Of(lock string) (Route, error) {
	segment := Segment(lock)
	for _, r := range t.Routes {
		if r.Segment == segment {
			return r, nil
		}
	}
	if t.Default == nil {
		return Route{}, &NoRouteError{Lock: lock, Segment: segment}
	}
	r := *t.Default
	r.Segment = segment
	return r, nil
}

// Follows returns one sentence if a client that knows the old table must not go on with this one: a segment would
// change its cluster without a move, or a move would be taken back by an older table.
func (t Table) Follows(old Table) error {
	segments := []string{""} // no segment has that name: it is the default's
	for _, r := range append(old.Routes, t.Routes...) {
		segments = append(segments, r.Segment)
	}
	for _, segment := range segments {
		before, none := old.Of(segment)
		if none != nil {
			continue
		}
		after, none := t.Of(segment)
		about := fmt.Sprintf("the segment %q", segment)
		if segment == "" {
			about = "the default"
		}
		switch {
		case none != nil:
			return fmt.Errorf("%s has no route any more", about)
		case after.Move < before.Move:
			return fmt.Errorf("%s has the move %d, the table before had %d: it is an older table",
				about, after.Move, before.Move)
		case after.Cluster != before.Cluster && after.Move == before.Move:
			return fmt.Errorf("%s goes from %q to %q without a move: name the old cluster as from, and a greater move",
				about, before.Cluster, after.Cluster)
		}
	}
	return nil
}
