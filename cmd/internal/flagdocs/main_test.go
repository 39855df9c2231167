package main

import (
	"os"
	"strings"
	"testing"
)

func TestTheFlagsInTheDocumentationAreThoseOfThePrograms(t *testing.T) {
	file, err := os.ReadFile("../../../docs/flags.md")
	if err != nil {
		t.Fatal(err)
	}
	var now strings.Builder
	write(&now)
	if now.String() != string(file) {
		t.Error("docs/flags.md is out of date: make docs")
	}
}
