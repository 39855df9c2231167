// Package web holds the templates and static files of the dashboard. There is no build step: what is here is what
// browsers get.
package web

import (
	"embed"
	"io/fs"
)

//go:embed templates/*.html static/*
var files embed.FS

// Templates are the html/template files.
func Templates() fs.FS { return sub("templates") }

// Static are the files that browsers load.
func Static() fs.FS { return sub("static") }

func sub(dir string) fs.FS {
	f, err := fs.Sub(files, dir)
	if err != nil {
		panic(err) // only for an invalid constant
	}
	return f
}
