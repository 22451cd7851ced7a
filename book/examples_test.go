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
//	$  runs, and prints the lines below it; [1] at their end is its exit code
//	^  does not end by itself: it is interrupted where the line ^C stands
//	>  is there to prepare the next, and stands nowhere else
//
// They run from a fresh home, one after the other, in one shell. What differs from run
// to run is named by its kind, see kinds: ‹uuid›; or by what it may be: ‹W1|W2›. Where
// even that cannot be said, … stands for anything, and a line with # above the command
// says why. Columns may be of any width.
type example struct {
	n       int
	why     string
	kind    byte
	command string
	output  string
	code    int
}

// hides reports whether something of the output is not compared.
func (e example) hides() bool { return strings.Contains(e.output, "…") }

func (e example) String() string {
	s := ""
	if e.why != "" {
		s = "# " + e.why + "\n"
	}
	s += fmt.Sprintf("%c %s\n%s", e.kind, e.command, e.output)
	if e.code != 0 {
		s += fmt.Sprintf("[%d]\n", e.code)
	}
	return s
}

const (
	examplesFile = "testdata/examples.txt"
	interruption = "^C\n"
)

// kinds are what differs from run to run, those first that others are part of.
var kinds = []struct{ name, expr string }{
	{"uuid", `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`},
	{"secret", `lh[at]_[\w-]+`},
	{"code", `code=[\w-]+`}, // of a link that signs in
	{"instant", `\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z`},
	{"stamp", `\d{8}T\d{6}(?:-\d+)?`},
	{"date", `\d{4}-\d\d-\d\d`},
	{"clock", `\d\d:\d\d:\d\d(?: [+-]\d\d:\d\d)?`},
	{"offset", `\d\d:\d\d\.\d{3}`},
	{"address", `127\.0\.0\.1:\d+`},
	{"run", `\bshop-[0-9a-f]+`},
	{"duration", `\b(?:\d+d)?(?:\d+h)?(?:\d+m)?\d+(?:\.\d+)?(?:d|h|m|s|ms|µs|ns)\b`},
	{"size", `\b\d+(?:\.\d+)? [KMGT]?i?B\b`},
	{"version", `\(devel\)|\bv?\d+\.\d+\.\d+[\w.+-]*`},
	{"go", `\bgo1\.[\w.-]+ for \w+/\w+`},
	{"pid", `\b(?:pid|process) \d+`},
	{"number", `\b\d+\b`},
}

// mask names what differs from run to run in an output, but for numbers, most of which
// do not.
func mask(output string) string {
	for _, k := range kinds[:len(kinds)-1] {
		output = regexp.MustCompile(k.expr).ReplaceAllString(output, "‹"+k.name+"›")
	}
	return output
}

var (
	lineEnd = regexp.MustCompile(` +\n`)
	varying = regexp.MustCompile(`‹[^›]*›`)
	columns = regexp.MustCompile(`  +`)
)

// compared is an output between line ends, without what is of no importance in it.
func compared(output string) string {
	return "\n" + columns.ReplaceAllString(lineEnd.ReplaceAllString(strings.TrimSpace(output), "\n"), "  ") + "\n"
}

// pattern matches the output of a command as it is shown. A line that is … stands for
// any lines, and in a line it stands for any words.
func pattern(output string) *regexp.Regexp {
	output = compared(output)
	expr, at := "(?s)^", 0
	literal := func(text string) { expr += anything.Replace(regexp.QuoteMeta(text)) }
	for _, place := range varying.FindAllStringIndex(output, -1) {
		literal(output[at:place[0]])
		at = place[1]
		name := strings.Trim(output[place[0]:at], "‹›")
		i := slices.IndexFunc(kinds, func(k struct{ name, expr string }) bool { return k.name == name })
		if i >= 0 {
			expr += "(?:" + kinds[i].expr + ")"
			continue
		}
		expr += "(?:" + strings.ReplaceAll(regexp.QuoteMeta(name), `\|`, "|") + ")"
	}
	literal(output[at:])
	return regexp.MustCompile(expr + "$")
}

// anything is longest first: whole lines before words.
var anything = strings.NewReplacer("\n…\n", "\n(?:.*\n)?", "…", "[^\n]*")

// firstOther is the first line of an output that is not as it is shown.
func firstOther(want, got string) string {
	lines := strings.Split(compared(got), "\n")
	for i, line := range strings.Split(compared(strings.Replace(want, interruption, "", 1)), "\n") {
		switch {
		case strings.Contains(line, "…"):
			return ""
		case i >= len(lines):
			return fmt.Sprintf("line %d is missing: %s", i+1, line)
		case !pattern(line).MatchString(compared(lines[i])):
			return fmt.Sprintf("line %d is\n%s\nand not\n%s", i+1, lines[i], line)
		}
	}
	return "there are more lines"
}

func examples(t *testing.T) (list []example) {
	t.Helper()
	b, err := os.ReadFile(examplesFile)
	if err != nil {
		t.Fatal(err)
	}
	n, why := 0, ""
	for text := range strings.Lines(string(b)) {
		text = strings.TrimSuffix(text, "\n")
		n++
		reason, comment := strings.CutPrefix(text, "# ")
		switch {
		case comment:
			why = reason
		case len(text) > 2 && strings.Contains("$^>", text[:1]) && text[1] == ' ':
			list = append(list, example{n: n, why: why, kind: text[0], command: text[2:]})
			why = ""
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
		if e.hides() != (e.why != "") {
			t.Errorf("%s:%d: say above a command, after #, why an output is not compared whole; and only there", examplesFile, e.n)
		}
		if (e.kind == '^') != strings.Contains(e.output, interruption) {
			t.Errorf("%s:%d: ^C says where a command after ^ is interrupted", examplesFile, e.n)
		}
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
	bin := buildCommand(t)
	env := home(t, bin)
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
	list, hidden := examples(t), 0
	for i := range list {
		e := &list[i]
		began := time.Now()
		var out string
		var code int
		if e.kind == '^' {
			start, _, _ := strings.Cut(e.output, interruption)
			enough := regexp.MustCompile(strings.TrimSuffix(pattern(start).String(), "$"))
			out, code = interrupted(t, env, sh.dir, freePorts(e.command), func(out string) bool {
				return enough.MatchString(compared(strings.ReplaceAll(out, dir, "~")))
			})
		} else {
			out, code = sh.run(t, e.command)
		}
		out = strings.ReplaceAll(strings.ReplaceAll(out, dir, "~"), bin, "BIN")
		t.Logf("%6.2f s  %s", time.Since(began).Seconds(), e.command)
		if e.hides() {
			hidden++
		}
		want := pattern(strings.Replace(e.output, interruption, "", 1))
		switch {
		case e.kind == '>' && code != 0:
			t.Fatalf("%s:%d: %s: exit code %d\n%s", examplesFile, e.n, e.command, code, out)
		case e.kind == '>', code == e.code && want.MatchString(compared(out)):
		case *update:
			e.code, e.output = code, mask(out)
			if e.kind == '^' {
				e.output += interruption
			}
			if e.output != "" && !strings.HasSuffix(e.output, "\n") {
				e.output += "\n"
			}
			e.why = ""
		default:
			t.Errorf("%s:%d: %s printed\n%s\n[%d]\nand not\n%s[%d]\n%s", examplesFile, e.n, e.command, out, code, e.output, e.code, firstOther(e.output, out))
		}
	}
	t.Logf("%d commands; of %d the output is not compared whole", len(list), hidden)
	if *update {
		var text strings.Builder
		for _, e := range list {
			text.WriteString(e.String())
		}
		if err := os.WriteFile(examplesFile, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// freePorts puts free ports in the place of those that the pages name, if they are
// taken on this machine.
func freePorts(command string) string {
	return address.ReplaceAllStringFunc(command, func(named string) string {
		l, err := net.Listen("tcp", named)
		if err != nil {
			return "127.0.0.1:0"
		}
		l.Close()
		return named
	})
}

var address = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// interrupted runs a command that does not end by itself until it has printed what
// it should, or for a while, and then interrupts it.
func interrupted(t *testing.T, env []string, dir, command string, done func(string) bool) (out string, code int) {
	t.Helper()
	var buf lockedBuffer
	cmd := exec.Command("sh", "-c", "exec env "+command)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = env, dir, &buf, &buf
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); !done(buf.String()) && time.Since(begun) < patience; {
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
