package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const repository = "https://github.com/clustermutex/unlocker/blob/main/"

// sourceLinks returns the flags that link the files below the directories, which lie there as in the repository.
func sourceLinks(dirs []string) (links []string) {
	for _, dir := range dirs {
		links = append(links, "--web.source-link="+dir+"/="+repository+"{file}#L{line}")
	}
	return links
}

// checkout returns the directory in which this program was built: the compiler wrote it into the backtraces.
func checkout() string {
	_, file, _, _ := runtime.Caller(0)
	return strings.TrimSuffix(file, "/cmd/mutexdev/sources.go")
}

// languagesDir returns a new directory, by the name that programs see when they look where they are.
func languagesDir() (string, error) {
	dir, err := os.MkdirTemp("", "mutexdev-demo-")
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}
