// Sbom prints what Go programs are made of: a bill of materials, in CycloneDX 1.5, with the modules that Go recorded in
// a program, their versions, checksums and licences, and the Go that built it; or the licences themselves, for whoever
// gets the programs. A module without a licence that it knows is an error.
package main

import (
	"context"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom VERSION PROGRAM, or sbom notices PROGRAM…")
		os.Exit(2)
	}
	var err error
	if os.Args[1] == "notices" {
		err = notices(context.Background(), os.Stdout, os.Args[2:])
	} else {
		err = run(context.Background(), os.Stdout, os.Args[1], os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, to io.Writer, version, program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	known, err := licences(ctx, used(info))
	if err != nil {
		return err
	}
	b, err := bill(info, known, filepath.Base(program), version)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(to, "%s\n", text)
	return err
}

type (
	document struct {
		Format      string      `json:"bomFormat"`
		SpecVersion string      `json:"specVersion"`
		Version     int         `json:"version"`
		Metadata    metadata    `json:"metadata"`
		Components  []component `json:"components"`
	}
	metadata struct {
		Component  component  `json:"component"`
		Properties []property `json:"properties"`
	}
	component struct {
		Type     string   `json:"type"`
		Ref      string   `json:"bom-ref"`
		Name     string   `json:"name"`
		Version  string   `json:"version"`
		PURL     string   `json:"purl"`
		Hashes   []hash   `json:"hashes,omitempty"`
		Licences []choice `json:"licenses,omitempty"`
	}
	choice struct {
		Licence struct {
			ID string `json:"id"`
		} `json:"license"`
	}
	hash struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
)

func bill(info *debug.BuildInfo, known map[string]licence, program, version string) (document, error) {
	purl := func(path, version string) string { return "pkg:golang/" + path + "@" + version }
	main := component{
		Type: "application", Name: program, Version: version,
		Ref: purl(info.Path, version), PURL: purl(info.Path, version),
	}
	all := []component{{
		Type: "library", Name: "std", Version: strings.TrimPrefix(info.GoVersion, "go"),
		Ref: purl("std", info.GoVersion), PURL: purl("std", strings.TrimPrefix(info.GoVersion, "go")),
		Licences: under(known["std"]),
	}}
	for _, m := range used(info) {
		sum, err := checksum(m.Sum)
		if err != nil {
			return document{}, fmt.Errorf("module %s: %w", m.Path, err)
		}
		all = append(all, component{
			Type: "library", Name: m.Path, Version: m.Version, Hashes: []hash{{"SHA-256", sum}},
			Ref: purl(m.Path, m.Version), PURL: purl(m.Path, m.Version), Licences: under(known[m.Path]),
		})
	}
	d := document{
		Format: "CycloneDX", SpecVersion: "1.5", Version: 1, Metadata: metadata{Component: main}, Components: all,
	}
	for _, s := range info.Settings {
		if s.Key == "GOOS" || s.Key == "GOARCH" || s.Key == "CGO_ENABLED" {
			d.Metadata.Properties = append(d.Metadata.Properties, property{"go:" + s.Key, s.Value})
		}
	}
	return d, nil
}

// under is a licence as CycloneDX writes it.
func under(l licence) []choice {
	var c choice
	c.Licence.ID = l.ID
	return []choice{c}
}

// checksum returns in hexadecimal what Go writes as h1:BASE64.
func checksum(sum string) (string, error) {
	text, is := strings.CutPrefix(sum, "h1:")
	if !is {
		return "", errors.New("there is no checksum")
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	return hex.EncodeToString(raw), err
}

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
