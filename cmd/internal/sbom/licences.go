package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// licence is what a module may be used under.
type licence struct {
	ID   string // an SPDX identifier
	Text string // the licence and, where the module has one, its NOTICE
}

// phrase tells a licence from others: a text that says all of this.
type phrase struct {
	id   string
	says []string
}

// phrases are the licences that a release may have. The first one whose phrases a text has counts.
func phrases() []phrase {
	return []phrase{
		{"Apache-2.0", []string{"Apache License", "Version 2.0, January 2004"}},
		{"MPL-2.0", []string{"Mozilla Public License Version 2.0"}},
		{"MIT", []string{"Permission is hereby granted, free of charge", `THE SOFTWARE IS PROVIDED "AS IS"`}},
		{"ISC", []string{"Permission to use, copy, modify, and/or distribute this software"}},
		{"ISC", []string{"Permission to use, copy, modify, and distribute this software for any purpose"}},
		{"BSD-3-Clause", []string{"Redistribution and use in source and binary forms", "Neither the name"}},
		{"BSD-2-Clause", []string{"Redistribution and use in source and binary forms"}},
	}
}

// identify returns the SPDX identifier of a licence's text.
func identify(text string) (string, error) {
	plain := strings.Join(strings.Fields(strings.NewReplacer("“", `"`, "”", `"`).Replace(text)), " ")
	for _, p := range phrases() {
		if !slices.ContainsFunc(p.says, func(part string) bool { return !strings.Contains(plain, part) }) {
			return p.id, nil
		}
	}
	return "", errors.New("its licence is none that a release may have: look at it, then add it to the list")
}

// licenceIn reads the licence of the module whose source is in a directory.
func licenceIn(dir string) (licence, error) {
	for _, name := range []string{"LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "COPYING"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return licence{}, err
		}
		id, err := identify(string(text))
		if err != nil {
			return licence{}, err
		}
		notice, err := os.ReadFile(filepath.Join(dir, "NOTICE"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return licence{}, err
		}
		return licence{id, string(slices.Concat(text, notice))}, nil
	}
	return licence{}, errors.New("it has no licence")
}

// licences reads the licences of the standard library, under the name std, and of modules, from where Go keeps their
// source.
func licences(ctx context.Context, modules []*debug.Module) (map[string]licence, error) {
	dirs, err := sources(ctx, modules)
	if err != nil {
		return nil, err
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	dirs["std"] = strings.TrimSpace(string(root))
	all := make(map[string]licence, len(dirs))
	for path, dir := range dirs {
		l, err := licenceIn(dir)
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", path, err)
		}
		all[path] = l
	}
	return all, nil
}

// sources returns where the source of each module is, downloaded if need be.
func sources(ctx context.Context, modules []*debug.Module) (map[string]string, error) {
	dirs := make(map[string]string, len(modules)+1)
	if len(modules) == 0 {
		return dirs, nil
	}
	args := []string{"mod", "download", "-json"}
	for _, m := range modules {
		args = append(args, m.Path+"@"+m.Version)
	}
	out, err := exec.CommandContext(ctx, "go", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("go mod download: %w", err)
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct{ Path, Dir string }
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			return dirs, nil
		}
		if err != nil {
			return nil, err
		}
		dirs[m.Path] = m.Dir
	}
}
