package demo

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// machine makes a machine with these programs on PATH, each of which prints its version.
func machine(t *testing.T, programs map[string]string) {
	t.Helper()
	bin := t.TempDir()
	for name, says := range programs {
		script(t, filepath.Join(bin, name), "echo '"+says+"'")
	}
	t.Setenv("PATH", bin)
	t.Chdir(t.TempDir()) // where there is no checkout
}

func script(t *testing.T, file, text string) {
	t.Helper()
	proctest.Must(t, os.WriteFile(file, []byte("#!/bin/sh\n"+text+"\n"), 0o700))
}

func find(t *testing.T) *Languages {
	t.Helper()
	found, err := FindLanguages(t.Context(), t.TempDir())
	proctest.Must(t, err)
	return found
}

func names(languages []Language) (names []string) {
	for _, l := range languages {
		names = append(names, l.Name)
	}
	return names
}

func TestMissingLanguagesAreReported(t *testing.T) {
	for name, c := range map[string]struct {
		programs map[string]string
		found    []string
		missing  []string
	}{
		"nothing": {nil, nil, []string{
			"no Python on this machine: the demo's Python holder is left out",
			"no Ruby on this machine: the demo's Ruby holder is left out",
			"no Node on this machine: the demo's TypeScript holder is left out",
		}},
		"everything": {map[string]string{"python3": "Python 3.9.1", "ruby": "ruby 3.1.7p261 (2025-03-26)",
			"node": "v22.18.0"}, []string{"Python", "Ruby", "TypeScript"}, nil},
		"everything, too old": {map[string]string{"python3": "Python 3.8.20", "ruby": "ruby 2.7.0p0",
			"node": "v18.19.0"}, nil, []string{
			"Python 3.8 is too old, 3.9 is needed: the demo's Python holder is left out",
			"Ruby 2.7 is too old, 3.1 is needed: the demo's Ruby holder is left out",
			"Node 18.19 is too old, 20.0 is needed: the demo's TypeScript holder is left out",
		}},
		"a Node that needs what is not built": {map[string]string{"node": "v20.20.2", "python3": "Python 3.13.0",
			"ruby": "ruby 4.0.0"}, []string{"Python", "Ruby"},
			[]string{"clients/typescript is not built here (npm ci && " +
				"npm run build), and Node 20.20 cannot run its sources, as 22.18 can: the demo's TypeScript holder " +
				"is left out"}},
	} {
		t.Run(name, func(t *testing.T) {
			machine(t, c.programs)
			got := find(t)
			if !slices.Equal(names(got.Found), c.found) || !slices.Equal(got.Missing, c.missing) {
				t.Errorf("found %q, missing\n%s\nwant %q, missing\n%s", names(got.Found),
					strings.Join(got.Missing, "\n"), c.found, strings.Join(c.missing, "\n"))
			}
		})
	}
}

func TestProgramWithoutAVersionIsSkipped(t *testing.T) {
	machine(t, map[string]string{"python3": "hello"})
	path, err := filepath.Abs(filepath.Join(os.Getenv("PATH"), "python3"))
	proctest.Must(t, err)
	if got := find(t).Missing[0]; got != path+" does not say its version: the demo's Python holder is left out" {
		t.Error(got)
	}
}

func TestNpmBuildRunsOnAnyNode(t *testing.T) {
	machine(t, map[string]string{"node": "v20.0.0"})
	top, err := os.Getwd()
	proctest.Must(t, err)
	dist, below := filepath.Join(top, "clients", "typescript", "dist"), filepath.Join(top, "docs", "images")
	for _, dir := range []string{dist, below} {
		proctest.Must(t, os.MkdirAll(dir, 0o700))
	}
	script(t, filepath.Join(dist, "index.mjs"), "")
	t.Chdir(below)
	if got := names(find(t).Found); !slices.Equal(got, []string{"TypeScript"}) {
		t.Errorf("found %q", got)
	}
}

func TestAllVersionsOfNode(t *testing.T) {
	for v, want := range map[version]bool{{20, 20}: false, {22, 17}: false, {22, 18}: true, {23, 5}: false,
		{23, 6}: true, {24, 0}: true, {30, 1}: true} {
		if got := erasesTypes(v); got != want {
			t.Errorf("Node %v erases types: %v", v, got)
		}
	}
}

func TestHolderReleasesItsLockWhenTheDemoEnds(t *testing.T) {
	dir := t.TempDir()
	holder, notes := filepath.Join(dir, "holder"), filepath.Join(dir, "notes")
	script(t, holder, "echo runs > "+notes+"; read -r _; echo released >> "+notes)
	demo := proctest.Go(t, func(ctx context.Context) error {
		Language{args: []string{holder}}.live(ctx, Options{})
		return nil
	})
	proctest.Eventually(t, "the holder runs", func() error {
		_, err := os.Stat(notes)
		return err
	})
	demo.Stop(t)
	got, err := os.ReadFile(notes)
	if err != nil || string(got) != "runs\nreleased\n" {
		t.Errorf("the holder notes %q, %v", got, err)
	}
}

func TestFailedHolderIsReportedWithItsOutput(t *testing.T) {
	holder := filepath.Join(t.TempDir(), "holder")
	script(t, holder, "echo >&2 'no module named clustermutex'; exit 3")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	log := logged(make(chan []byte, 1))
	go Language{Name: "Python", Lock: "a", args: []string{holder}}.live(ctx, Options{Log: zerolog.New(log)})
	got := <-log
	for _, want := range []string{"the demo's Python holder ended", "exit status 3", "no module named clustermutex"} {
		if !bytes.Contains(got, []byte(want)) {
			t.Errorf("%s\nwant %q", got, want)
		}
	}
}

// logged receives the lines of a log.
type logged chan []byte

func (l logged) Write(p []byte) (int, error) {
	l <- bytes.Clone(p)
	return len(p), nil
}
