package demo

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/clustermutex/unlocker/clients"
)

// Languages are the demo's holders that use the clients in other languages: those that this machine can run.
type Languages struct {
	Found   []Language
	Missing []string // a sentence for each holder that cannot run here
}

// Language is a holder in another language: a program that takes a lock again and again until its input ends.
type Language struct {
	Name string
	Lock string
	Job  string // what it is an example of

	args, env []string
}

// runtime is what a client and its holder need.
type runtime struct {
	name, lock, job string
	program         program
	// command returns arguments and environment. Paths are below dir, where the files of the repository lie as they
	// lie there.
	command func(dir, interpreter string, found version) (args, env []string, err error)
}

// program is a program on PATH.
type program struct {
	name  string
	what  string  // as people write it
	least version // that the client needs
}

// version is major and minor.
type version [2]int

func (v version) before(w version) bool { return v[0] < w[0] || v[0] == w[0] && v[1] < w[1] }

func (v version) String() string { return fmt.Sprintf("%d.%d", v[0], v[1]) }

//go:embed holders
var programs embed.FS

// holders is where they lie in the repository.
const holders = "cmd/mutexdev/demo/holders"

// unpack puts the clients and the holders where they lie in the repository.
func unpack(dir string) error {
	return errors.Join(os.CopyFS(filepath.Join(dir, "clients"), clients.Sources),
		os.CopyFS(filepath.Join(dir, filepath.Dir(holders)), programs))
}

func runtimes() []runtime {
	return []runtime{
		{name: "Python", program: program{"python3", "Python", version{3, 9}},
			lock: "analytics/funnel", job: "a long job that reports progress", command: python},
		{name: "Ruby", program: program{"ruby", "Ruby", version{3, 1}},
			lock: "newsletter/autumn", job: "e-mails in batches", command: ruby},
		{name: "TypeScript", program: program{"node", "Node", version{20, 0}},
			lock: "website/sitemap", job: "a build, section by section", command: typescript},
	}
}

func python(dir, interpreter string, _ version) (args, env []string, err error) {
	return []string{interpreter, filepath.Join(dir, holders, "funnel.py")},
		[]string{"PYTHONPATH=" + filepath.Join(dir, "clients/python/src"), "PYTHONDONTWRITEBYTECODE=1"}, nil
}

func ruby(dir, interpreter string, _ version) (args, env []string, err error) {
	library := filepath.Join(dir, "clients/ruby/lib")
	return []string{interpreter, "-I", library, filepath.Join(dir, holders, "newsletter.rb")}, nil, nil
}

// typescript runs the client's sources, where Node can, or what npm has built of them in the checkout around the
// working directory.
func typescript(dir, interpreter string, found version) (args, env []string, err error) {
	client := filepath.Join(dir, "clients/typescript")
	args = []string{interpreter}
	if erasesTypes(found) {
		about := []byte(`{"type": "module", "exports": "./src/index.ts"}`)
		if err := os.WriteFile(filepath.Join(client, "package.json"), about, 0o600); err != nil {
			return nil, nil, err
		}
		args = append(args, "--import", filepath.Join(dir, holders, "strip-types.mjs"))
	} else if client = built(); client == "" {
		return nil, nil, fmt.Errorf("clients/typescript is not built here (npm ci && npm run build), and Node %v "+
			"cannot run its sources, as 22.18 can", found)
	}
	modules := filepath.Join(dir, "node_modules")
	if err := os.Mkdir(modules, 0o700); err != nil {
		return nil, nil, err
	}
	return append(args, filepath.Join(dir, holders, "sitemap.mjs")), nil,
		os.Symlink(client, filepath.Join(modules, "clustermutex"))
}

// erasesTypes reports whether that Node runs TypeScript.
func erasesTypes(node version) bool {
	return !node.before(version{22, 18}) && (node[0] != 23 || !node.before(version{23, 6}))
}

// built returns the directory of the TypeScript client in the checkout around the working directory, if it is built.
func built() string {
	at, err := os.Getwd()
	for err == nil {
		client := filepath.Join(at, "clients", "typescript")
		if _, err := os.Stat(filepath.Join(client, "dist", "index.mjs")); err == nil {
			return client
		}
		if filepath.Dir(at) == at {
			break
		}
		at = filepath.Dir(at)
	}
	return ""
}

// FindLanguages looks for what this machine has, and puts the clients and their holders into dir. What it does not find
// is no error: [Languages.Missing] says so.
func FindLanguages(ctx context.Context, dir string) (*Languages, error) {
	if err := unpack(dir); err != nil {
		return nil, err
	}
	l := &Languages{}
	for _, r := range runtimes() {
		holder, err := r.find(ctx, dir)
		if err != nil {
			l.Missing = append(l.Missing, fmt.Sprintf("%v: the demo's %s holder is left out", err, r.name))
			continue
		}
		l.Found = append(l.Found, holder)
	}
	return l, nil
}

// find returns the holder; the error is a sentence.
func (r runtime) find(ctx context.Context, dir string) (Language, error) {
	file, found, err := r.program.find(ctx)
	if err != nil {
		return Language{}, err
	}
	args, env, err := r.command(dir, file, found)
	return Language{r.name, r.lock, r.job, args, env}, err
}

var versionIn = regexp.MustCompile(`([0-9]+)\.([0-9]+)`)

func (p program) find(ctx context.Context) (string, version, error) {
	file, err := exec.LookPath(p.name)
	if err != nil {
		return "", version{}, fmt.Errorf("no %s on this machine", p.what)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, file, "--version").Output() //nolint:gosec // a program of the user's
	found := versionIn.FindStringSubmatch(string(out))
	if err != nil || found == nil {
		return "", version{}, fmt.Errorf("%s does not say its version", file)
	}
	major, err1 := strconv.Atoi(found[1])
	minor, err2 := strconv.Atoi(found[2])
	v := version{major, minor}
	if errors.Join(err1, err2) != nil || v.before(p.least) {
		return "", v, fmt.Errorf("%s %v is too old, %v is needed", p.what, v, p.least)
	}
	return file, v, nil
}
