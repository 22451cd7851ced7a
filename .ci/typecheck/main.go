// Typecheck checks the types of packages and of their tests, for any platform. It
// compiles nothing, so it takes seconds where the compiler takes a minute. It does not
// look at the bodies of functions in other modules.
//
//	typecheck [-C DIRECTORY] [-platform OS/ARCH] PACKAGE...
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

var (
	directory = flag.String("C", ".", "the directory of the module")
	platform  = flag.String("platform", runtime.GOOS+"/"+runtime.GOARCH, "the system and the processor")
)

func main() {
	flag.Parse()
	checked, wrong, err := check(flag.Args())
	for _, err := range wrong {
		fmt.Fprintln(os.Stderr, err)
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	case len(wrong) > 0:
		os.Exit(1)
	}
	fmt.Printf("the types of %d packages are right on %s\n", checked, *platform)
}

// A listed package is what go list tells of it.
type listed struct {
	Dir, ImportPath string
	GoFiles         []string
	ImportMap       map[string]string
	Module          *struct {
		Main      bool
		GoVersion string
	}
	Error *struct{ Err string }

	files  []*ast.File
	parsed error
}

// own reports whether the package is one of those that are checked whole.
func (p *listed) own() bool { return p.Module != nil && p.Module.Main }

// check returns the number of own packages and what is wrong with them.
func check(packages []string) (checked int, wrong []error, err error) {
	list, err := dependencies(packages)
	if err != nil {
		return 0, nil, err
	}
	fset := token.NewFileSet()
	parse(fset, list)
	_, arch, _ := strings.Cut(*platform, "/")
	sizes := types.SizesFor("gc", arch)
	done := map[string]*types.Package{"unsafe": types.Unsafe}
	for _, p := range list { // each after what it imports
		if p.ImportPath == "unsafe" {
			continue
		}
		if p.parsed != nil {
			wrong = append(wrong, p.parsed)
			continue
		}
		config := types.Config{
			Importer: importer(func(path string) (*types.Package, error) {
				if to, mapped := p.ImportMap[path]; mapped {
					path = to
				}
				if done[path] == nil {
					return nil, fmt.Errorf("package %s is not there", path)
				}
				return done[path], nil
			}),
			IgnoreFuncBodies: !p.own(),
			Sizes:            sizes,
			Error:            func(err error) { wrong = append(wrong, err) },
		}
		if p.Module != nil && p.Module.GoVersion != "" {
			config.GoVersion = "go" + p.Module.GoVersion
		}
		path, _, _ := strings.Cut(p.ImportPath, " ")                   // such as "p [p.test]"
		done[p.ImportPath], _ = config.Check(path, fset, p.files, nil) // Error was told
		if p.own() {
			checked++
		}
	}
	return checked, wrong, nil
}

type importer func(path string) (*types.Package, error)

func (i importer) Import(path string) (*types.Package, error) { return i(path) }

// dependencies are the packages, their tests and all that they import.
func dependencies(packages []string) (list []*listed, err error) {
	cmd := exec.Command("go", append([]string{"list", "-deps", "-test", "-json=Dir,ImportPath,GoFiles,ImportMap,Module,Error"}, packages...)...)
	system, arch, _ := strings.Cut(*platform, "/")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch)
	cmd.Dir, cmd.Stderr = *directory, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for decoder := json.NewDecoder(out); ; {
		p := new(listed)
		if err = decoder.Decode(p); err != nil {
			break
		}
		if p.Error != nil {
			err = errors.New(p.Error.Err)
			break
		}
		if !strings.HasSuffix(p.ImportPath, ".test") { // the main package that go test writes
			list = append(list, p)
		}
	}
	if err == io.EOF {
		err = nil
	}
	return list, errors.Join(err, cmd.Wait())
}

func parse(fset *token.FileSet, list []*listed) {
	var all sync.WaitGroup
	for _, p := range list {
		all.Go(func() {
			for _, name := range p.GoFiles {
				file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
				if err != nil {
					p.parsed = err
					return
				}
				p.files = append(p.files, file)
			}
		})
	}
	all.Wait()
}
