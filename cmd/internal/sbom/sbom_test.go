package main

import (
	"encoding/json"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

func TestSBOMHasEveryModuleOfTheProgram(t *testing.T) {
	self, err := os.Executable()
	proctest.Must(t, err)
	var out strings.Builder
	proctest.Must(t, run(t.Context(), &out, "v1.2.3", self))
	var d document
	proctest.Must(t, json.Unmarshal([]byte(out.String()), &d))
	if d.Format != "CycloneDX" || d.Metadata.Component.Version != "v1.2.3" || d.Components[0].Name != "std" {
		t.Errorf("%+v", d)
	}
}

func TestModuleHasItsVersionAndChecksum(t *testing.T) {
	info := &debug.BuildInfo{
		GoVersion: "go1.26.0", Path: "example.org/app/cmd/app",
		Deps: []*debug.Module{
			{Path: "example.org/a", Version: "v1.0.0", Sum: "h1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="},
			{Path: "example.org/b", Version: "v2.0.0", Replace: &debug.Module{Path: "example.org/c", Version: "v3.0.0",
				Sum: "h1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}},
		},
		Settings: []debug.BuildSetting{{Key: "GOOS", Value: "linux"}, {Key: "-ldflags", Value: "secret"}},
	}
	known := map[string]licence{"example.org/a": {ID: "MIT"}}
	d, err := bill(info, known, "app", "v1.2.3")
	proctest.Must(t, err)
	var purls []string
	for _, c := range d.Components {
		purls = append(purls, c.PURL)
	}
	want := []string{"pkg:golang/std@1.26.0", "pkg:golang/example.org/a@v1.0.0", "pkg:golang/example.org/c@v3.0.0"}
	if !slices.Equal(purls, want) {
		t.Errorf("%q, want %q", purls, want)
	}
	sum := d.Components[1].Hashes[0].Content
	if !regexp.MustCompile(`^000102.{56}1f$`).MatchString(sum) {
		t.Errorf("checksum %s", sum)
	}
	if id := d.Components[1].Licences[0].Licence.ID; id != "MIT" {
		t.Errorf("licence %s", id)
	}
	if len(d.Metadata.Properties) != 1 {
		t.Errorf("%v", d.Metadata.Properties)
	}
	info.Deps[0].Sum = ""
	if _, err := bill(info, known, "app", "v1.2.3"); err == nil || !strings.Contains(err.Error(), "example.org/a") {
		t.Errorf("a module without a checksum: %v", err)
	}
}

func TestLicenceIsIdentifiedByItsText(t *testing.T) {
	const bsd = "Redistribution and use in source and binary forms, with or without modification"
	for text, want := range map[string]string{
		"Apache License\n    Version 2.0, January 2004": "Apache-2.0",
		bsd + "\n   * Neither the name of the author":   "BSD-3-Clause",
		bsd: "BSD-2-Clause",
		"Permission is hereby granted, free of charge\nTHE SOFTWARE IS\nPROVIDED \"AS IS\"": "MIT",
	} {
		if id, err := identify(text); err != nil || id != want {
			t.Errorf("%q is %q, %v; want %s", text, id, err, want)
		}
	}
	if id, err := identify("GNU AFFERO GENERAL PUBLIC LICENSE"); err == nil {
		t.Errorf("a licence that no release may have is %q", id)
	}
}

func TestModuleWithoutALicenceIsRefused(t *testing.T) {
	if l, err := licenceIn(t.TempDir()); err == nil {
		t.Errorf("%+v", l)
	}
}

func TestNoticesNameEachModuleOnce(t *testing.T) {
	self, err := os.Executable()
	proctest.Must(t, err)
	var out strings.Builder
	proctest.Must(t, notices(t.Context(), &out, []string{self, self}))
	text := out.String()
	if strings.Count(text, "The standard library of Go") != 1 || !strings.Contains(text, "The Go Authors") {
		t.Errorf("%s", text)
	}
}
