package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"io"
	"maps"
	"runtime/debug"
	"slices"
)

// notices writes what programs are made of by others: each module once, with its version and its licence in full.
func notices(ctx context.Context, to io.Writer, programs []string) error {
	modules := map[string]*debug.Module{}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return err
		}
		for _, m := range used(info) {
			modules[m.Path] = m
		}
	}
	all, err := licences(ctx, slices.Collect(maps.Values(modules)))
	if err != nil {
		return err
	}
	modules["std"] = &debug.Module{Path: "The standard library of Go"}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		m := modules[path]
		_, err := fmt.Fprintf(to, "%s %s (%s)\n\n%s\n\n%s\n\n", m.Path, m.Version, all[path].ID, all[path].Text, rule)
		if err != nil {
			return err
		}
	}
	return nil
}

// rule ends each notice.
const rule = "--------------------------------------------------------------------------------"

// used returns the modules of a program, each as it was compiled.
func used(info *debug.BuildInfo) []*debug.Module {
	modules := make([]*debug.Module, 0, len(info.Deps))
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		modules = append(modules, m)
	}
	return modules
}
