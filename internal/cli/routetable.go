package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"gopkg.in/yaml.v3"

	"github.com/clustermutex/unlocker/pkg/route"
)

// routeTable is a file with a table of routes, and its text, in which a change leaves comments where they are.
type routeTable struct {
	file  string
	text  []byte
	table route.Table
}

func readRoutes(file string) (*routeTable, error) {
	if file == "" {
		return nil, usagef("the table is missing: give --table FILE")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, &statusError{ExitUsage, fmt.Errorf("the table of routes cannot be read: %w", err)}
	}
	t := &routeTable{file: file, text: text}
	if t.table, err = route.Parse(text); err != nil {
		return nil, &statusError{ExitUsage, fmt.Errorf("the table of routes %s: %w", file, err)}
	}
	return t, nil
}

// with is the table with another route for its segment.
func (t *routeTable) with(r route.Route) (*routeTable, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(t.text, &doc); err != nil {
		return nil, err
	}
	entry := routeEntry(doc.Content[0], r.Segment)
	setKey(entry, "cluster", r.Cluster)
	setKey(entry, "from", r.From)
	setKey(entry, "move", strconv.Itoa(r.Move))
	if r.TokensMayFall {
		setKey(entry, "tokens-may-fall", "true")
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(&doc); err != nil {
		return nil, err
	}
	changed := &routeTable{file: t.file, text: out.Bytes()}
	var err error
	if changed.table, err = route.Parse(changed.text); err != nil {
		return nil, err
	}
	if got, err := changed.table.Of(r.Segment); err != nil || got != r {
		return nil, fmt.Errorf("the table cannot be changed by a program: write the route of %q by hand", r.Segment)
	}
	return changed, changed.table.Follows(t.table)
}

// routeEntry is the mapping of a segment's route, a new one if there is none.
func routeEntry(top *yaml.Node, segment string) *yaml.Node {
	routes := valueOf(top, "routes")
	if routes == nil {
		routes = &yaml.Node{Kind: yaml.SequenceNode}
		top.Content = append(top.Content, scalar("routes"), routes)
	}
	for _, entry := range routes.Content {
		if name := valueOf(entry, "segment"); name != nil && name.Value == segment {
			return entry
		}
	}
	entry := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle,
		Content: []*yaml.Node{scalar("segment"), {Kind: yaml.ScalarNode, Tag: "!!str", Value: segment}}}
	routes.Content = append(routes.Content, entry)
	return entry
}

func scalar(value string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: value} }

func valueOf(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// setKey sets a key of a mapping; an empty value removes it.
func setKey(mapping *yaml.Node, key, value string) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value != key {
			continue
		}
		if value == "" {
			mapping.Content = append(mapping.Content[:i], mapping.Content[i+2:]...)
			return
		}
		mapping.Content[i+1] = scalar(value)
		return
	}
	if value != "" {
		mapping.Content = append(mapping.Content, scalar(key), scalar(value))
	}
}

// write replaces the file, so that a reader sees the old table or the new one.
func (t *routeTable) write() error {
	file, err := filepath.EvalSymlinks(t.file)
	if err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(file), ".routes-*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // is gone if all went well
	_, err = temporary.Write(t.text)
	if err == nil {
		err = temporary.Chmod(info.Mode().Perm())
	}
	if err == nil {
		err = temporary.Sync()
	}
	if closed := temporary.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(temporary.Name(), file)
}
