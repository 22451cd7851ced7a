package book

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var runExamples = flag.Bool("examples", false, "run every command that a page or a help text shows")

// An example is a command that a page or a help text shows as one that can be
// typed, in testdata/examples.txt, where a command follows one of
//
//	$  runs, and prints the lines below it, in which … stands for anything; [1]
//	   at their end is its exit code
//	^  does not end by itself: the same, until an interrupt
//	>  is there to prepare the next, and stands nowhere else
//
// They run from a fresh home, one after the other, in one shell.
type example struct {
	n       int
	kind    byte
	command string
	output  string
	code    int
}

const examplesFile = "testdata/examples.txt"

func examples(t *testing.T) (list []example) {
	t.Helper()
	b, err := os.ReadFile(examplesFile)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for text := range strings.Lines(string(b)) {
		text = strings.TrimSuffix(text, "\n")
		n++
		switch {
		case len(text) > 2 && strings.Contains("$^>", text[:1]) && text[1] == ' ':
			list = append(list, example{n: n, kind: text[0], command: text[2:]})
		case len(list) == 0:
			t.Fatalf("%s:%d: no command is above it", examplesFile, n)
		case exitCode.MatchString(text):
			list[len(list)-1].code, _ = strconv.Atoi(text[1 : len(text)-1])
		default:
			list[len(list)-1].output += text + "\n"
		}
	}
	return list
}

var exitCode = regexp.MustCompile(`^\[\d+\]$`)

// Every command that a fence for shells or a help text shows is an example, whose
// output is compared by TestExamples, and every example is shown somewhere.
// Sessions for consoles are compared where they are.
func checkExamplesAreComplete(t *testing.T, helps map[string]string) {
	t.Helper()
	shown := make(map[string]string) // where
	for name, help := range helps {
		_, text, _ := strings.Cut(help, "Examples:\n")
		text, _, _ = strings.Cut(text, "\n\nFlags:")
		for line := range strings.Lines(text) {
			if command := strings.TrimSpace(line); strings.HasPrefix(line, "  ") && !strings.HasPrefix(command, "#") && strings.Contains(command, "leasehold ") &&
				!listedCommand.MatchString(line) {
				shown[command] = name + " --help"
			}
		}
	}
	for _, p := range pages(t) {
		for _, l := range p.lines {
			command := strings.TrimSpace(l.text)
			if l.fence == "sh" && l.in && !fromFile(p, l.n) && strings.Contains(command, "leasehold") && !strings.HasPrefix(command, "#") && !others.MatchString(command) {
				shown[command] = p.file
			}
		}
	}
	run := make(map[string]bool)
	for _, e := range examples(t) {
		if e.kind == '>' {
			continue
		}
		run[e.command] = true
		if shown[e.command] == "" {
			t.Errorf("%s:%d: no page and no help text shows %s", examplesFile, e.n, e.command)
		}
	}
	for _, command := range slices.Sorted(maps.Keys(shown)) {
		if !run[command] {
			t.Errorf("%s shows a command that nothing compares: add it with its output to book/%s: %s", shown[command], examplesFile, command)
		}
	}
}

// others are commands of programs that are not here in a gate. What the clients are
// told is tried with the real ones, see TestRealClientsAcceptTheConfiguration.
var others = regexp.MustCompile(`^(go|claude|gemini) `)

// listedCommand is a line of the list of commands below the examples.
var listedCommand = regexp.MustCompile(`^  \w+ {2,}\S`)

// fromFile reports whether a line is of a file that the page shows, whose commands
// are that file's.
func fromFile(p page, n int) bool {
	for i := n - 2; i >= 0; i-- {
		if l := p.lines[i]; !l.in {
			return i > 0 && source.MatchString(p.lines[i-1].text)
		}
	}
	return false
}

// Every command of the help texts and the pages does what the file of examples
// says, from a fresh home.
func TestExamples(t *testing.T) {
	if !*runExamples {
		t.Skip("run with -examples, as just examples does: it takes 10 s of processor")
	}
	env := home(t, buildCommand(t))
	dir := strings.TrimPrefix(env[1], "HOME=")
	env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "XDG_") || strings.HasPrefix(v, "LEASEHOLD_") })
	env[0] = "PATH=" + filepath.Join(dir, "bin") + string(filepath.ListSeparator) + strings.TrimPrefix(env[0], "PATH=")
	for _, name := range []string{"bin", "shop"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(dir, "shop", "examples"), os.DirFS("../examples")); err != nil {
		t.Fatal(err)
	}
	sh := startShell(t, env, filepath.Join(dir, "shop"))
	defer func() {
		stop := exec.Command("sh", "-c", "leasehold stop")
		stop.Env = env
		if out, err := stop.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}()
	for _, e := range examples(t) {
		began := time.Now()
		var out string
		var code int
		want := pattern(e.output)
		if e.kind == '^' {
			e.command = freePort(e.command)
			e.output = strings.ReplaceAll(e.output, "127.0.0.1:7711", "…")
			want = pattern(e.output)
			enough := begins(e.output)
			if enough.MatchString("") {
				t.Fatalf("%s:%d: %s: say what it prints: it is interrupted once it has", examplesFile, e.n, e.command)
			}
			out, code = interrupted(t, env, sh.dir, e.command, func(out string) bool { return enough.MatchString(strings.ReplaceAll(out, dir, "~")) })
		} else {
			out, code = sh.run(t, e.command)
		}
		out = strings.TrimSpace(strings.ReplaceAll(out, dir, "~"))
		t.Logf("%6.2f s  %s", time.Since(began).Seconds(), e.command)
		switch {
		case e.kind == '>' && code != 0:
			t.Fatalf("%s:%d: %s: exit code %d\n%s", examplesFile, e.n, e.command, code, out)
		case e.kind != '>' && (code != e.code || !want.MatchString(out)):
			t.Errorf("%s:%d: %s printed\n%s\n[%d]\nand not\n%s[%d]", examplesFile, e.n, e.command, out, code, e.output, e.code)
		}
	}
}

// begins matches the output of a command that is to be interrupted once it has
// printed what comes before its end.
func begins(output string) *regexp.Regexp {
	start := strings.TrimSuffix(strings.TrimSpace(output), "\n…")
	return regexp.MustCompile(strings.TrimSuffix(pattern(start).String(), "$"))
}

// freePort puts a free port in the place of the one that the pages name, if that is
// taken on this machine.
func freePort(command string) string {
	const named = "127.0.0.1:7711"
	if !strings.Contains(command, named) {
		return command
	}
	if l, err := net.Listen("tcp", named); err == nil {
		l.Close()
		return command
	}
	return strings.ReplaceAll(command, named, "127.0.0.1:0")
}

// interrupted runs a command that does not end by itself until it has printed what
// it should, or for a while, and then interrupts it.
func interrupted(t *testing.T, env []string, dir, command string, done func(string) bool) (out string, code int) {
	t.Helper()
	var buf lockedBuffer
	cmd := exec.Command("sh", "-c", "exec "+command)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = env, dir, &buf, &buf
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		if done(buf.String()) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	var exited *exec.ExitError
	switch {
	case errors.As(err, &exited):
		code = exited.ExitCode()
	case err != nil:
		t.Fatal(err)
	}
	return buf.String(), code
}

// A lockedBuffer is read while a process writes to it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A shell runs commands one after the other, which share variables.
type shell struct {
	dir string
	in  io.Writer
	out *bufio.Reader
}

func startShell(t *testing.T, env []string, dir string) *shell {
	t.Helper()
	cmd := exec.Command("sh")
	cmd.Env, cmd.Dir = env, dir
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	return &shell{dir, in, bufio.NewReader(out)}
}

const commandEnd = "@@ ended with "

func (sh *shell) run(t *testing.T, command string) (out string, code int) {
	t.Helper()
	fmt.Fprintf(sh.in, "{ %s\n} 2>&1 </dev/null; echo '%s'$?\n", command, commandEnd)
	for {
		line, err := sh.out.ReadString('\n')
		if err != nil {
			t.Fatalf("%s ended the shell: %v\n%s", command, err, out)
		}
		if before, after, ended := strings.Cut(line, commandEnd); ended {
			code, err = strconv.Atoi(strings.TrimSpace(after))
			if err != nil {
				t.Fatal(err)
			}
			return out + before, code
		}
		out += line
	}
}
