// Package mutants puts faults into the code, one at a time, and wants a test to find each:
//
//	go test ./test/mutants                                 each fault has its place, and the test is there
//	go test ./test/mutants -mutants all                    the test finds it
//	go test ./test/mutants -v -mutants all -by-any         which tests of its package find it
//
// The files stay as they are: an overlay of the compiler has all faults, and a variable of the environment chooses one.
// Guards of the protocol are left out by test/robustness, on the wire.
package mutants_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

var (
	mutantsFlag = flag.String("mutants", "", "faults to put in, comma separated, or all")
	byAnyFlag   = flag.Bool("by-any", false, "run all tests of the package for each, and log which of them find it")
)

// fault is a place in the code, and what is wrong there.
type fault struct {
	name  string
	right string // the place, unique in the suite's code; the expression is in «» if the place is more than that
	wrong string // another expression of the same type
	found string // the test that finds it, or test/subtest
}

// suite is the faults that the tests of a package find.
type suite struct {
	code   string // directories, or patterns of some; the first is that of the tests
	faults []fault
}

func (s suite) dir() string { return strings.Fields(s.code)[0] }

// suites has a fault for each guard, limit, escape and branch of a judgement that a test is there for.
var suites = slices.Concat(clientSuites, unlockerSuites, readerSuites, dashboardSuites)

// root is the repository.
const root = "../.."

func TestEveryFaultIsFound(t *testing.T) {
	replaced := overlay(t)
	known := map[string]bool{}
	for _, s := range suites {
		dir := s.dir()
		t.Run(dir, func(t *testing.T) {
			tests := testsOf(t, dir)
			for _, f := range s.faults {
				if test, _, _ := strings.Cut(f.found, "/"); !slices.Contains(tests, test) {
					t.Errorf("%s is found by %s, which %s does not have", f.name, f.found, dir)
				}
				if known[f.name] {
					t.Errorf("two faults are called %s", f.name)
				}
				known[f.name] = true
			}
			chosen := slices.DeleteFunc(slices.Clone(s.faults), func(f fault) bool {
				return *mutantsFlag != "all" && !slices.Contains(strings.Split(*mutantsFlag, ","), f.name)
			})
			if len(chosen) == 0 {
				return
			}
			binary := build(t, dir, replaced)
			var finders []string
			for _, f := range chosen {
				if slices.Contains(finders, f.found) {
					continue
				}
				finders = append(finders, f.found)
				if out, err := run(dir, binary, "", f.found); err != nil {
					t.Fatalf("%s fails without a fault: %s", f.found, out)
				}
			}
			for _, f := range chosen {
				t.Run(f.name, func(t *testing.T) { f.find(t, dir, binary) })
			}
		})
	}
}

// find runs the test, or all tests, with the fault.
func (f fault) find(t *testing.T, dir, binary string) {
	if !*byAnyFlag {
		if _, err := run(dir, binary, f.name, f.found); err == nil {
			t.Errorf("%s does not find that %s is %s", f.found, f.right, f.wrong)
		}
		return
	}
	out, _ := run(dir, binary, f.name, ".*")
	var finders []string
	for _, m := range regexp.MustCompile(`(?m)^--- FAIL: (\w+)`).FindAllStringSubmatch(out, -1) {
		finders = append(finders, m[1])
	}
	t.Logf("%s is found by %d: %s", f.name, len(finders), strings.Join(finders, " "))
}

func run(dir, binary, fault, test string) (out string, err error) {
	// a fault can make a loop endless, in which the binary's own limit is not always heeded
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run=^"+strings.ReplaceAll(test, "/", "$/^")+"$", "-test.timeout=1m")
	cmd.Dir = filepath.Join(root, dir)
	cmd.Env = append(os.Environ(), "FAULT="+fault)
	cmd.WaitDelay = time.Second // for what a test that failed has left behind
	printed, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrWaitDelay) { // the tests themselves passed
		err = nil
	}
	return string(printed), err
}

// testsOf are the tests of a package.
func testsOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	proctest.Must(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		proctest.Must(t, err)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(source), -1) {
			names = append(names, m[1])
		}
	}
	return names
}

// overlay writes the files that have faults, with all of them in place, and returns where the compiler finds them.
func overlay(t *testing.T) string {
	t.Helper()
	sources := map[string]string{}
	for _, s := range suites {
		code := s.read(t, sources)
		for _, f := range s.faults {
			f.into(t, code, sources)
		}
	}
	file, err := proctest.Overlay(t.TempDir(), sources)
	proctest.Must(t, err)
	return file
}

// read adds the code of a suite to the sources, and returns its files.
func (s suite) read(t *testing.T, sources map[string]string) (code []string) {
	t.Helper()
	for _, dir := range strings.Fields(s.code) {
		pattern, err := filepath.Abs(filepath.Join(root, dir, "*.go"))
		proctest.Must(t, err)
		files, err := filepath.Glob(pattern)
		proctest.Must(t, err)
		files = slices.DeleteFunc(files, func(file string) bool { return strings.HasSuffix(file, "_test.go") })
		for _, file := range files {
			if sources[file] == "" {
				source, err := os.ReadFile(file)
				proctest.Must(t, err)
				sources[file] = string(source)
			}
		}
		code = append(code, files...)
	}
	return code
}

// into puts the fault into the file of the code that has its place.
func (f fault) into(t *testing.T, code []string, sources map[string]string) {
	t.Helper()
	right := f.right
	if !strings.Contains(right, "«") {
		right = "«" + right + "»"
	}
	place := strings.NewReplacer("«", "", "»", "").Replace(right)
	lacks := func(file string) bool { return !strings.Contains(sources[file], place) }
	in := slices.DeleteFunc(slices.Clone(code), lacks)
	if len(in) != 1 || strings.Count(sources[in[0]], place) != 1 {
		t.Errorf("%s: %q is in %q, want one place", f.name, place, in)
		return
	}
	file := in[0]
	either := strings.NewReplacer("«", fmt.Sprintf("faultIf(%q, %s, ", f.name, f.wrong), "»", ")").Replace(right)
	sources[filepath.Join(filepath.Dir(file), "zz_faults.go")] = packageClause.FindString(sources[file]) + helper
	sources[file] = strings.Replace(sources[file], place, either, 1)
}

var packageClause = regexp.MustCompile(`(?m)^package \w+`)

// helper is in a file of the same package, with what chooses between right and wrong.
const helper = `

import "os"

var faultOn = os.Getenv("FAULT")

func faultIf[T any](name string, wrong, right T) T {
	if name == faultOn {
		return wrong
	}
	return right
}
`

// build makes the test binary of a package.
func build(t *testing.T, dir, overlay string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "test")
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary)
	cmd.Dir = filepath.Join(root, dir) // it may be a module of its own
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}
