// Recording writes the recording of the README: it runs a tree of two agents
// that contend for one file, in a home of its own, and draws what
// leasehold dispatch prints as an SVG, in which each line appears when it was
// printed.
//
//	go run ./.ci/recording -leasehold dist/leasehold -o book/src/recording.svg
package main

import (
	"bufio"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const manifest = "examples/contention/leasehold.toml"

// A line is one that was printed, and when.
type line struct {
	at   time.Duration
	text string
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("recording: ")
	leasehold := flag.String("leasehold", "dist/leasehold", "the `command` to record")
	out := flag.String("o", "book/src/recording.svg", "the `file` to write")
	flag.Parse()
	lines, err := record(*leasehold)
	if err == nil {
		err = os.WriteFile(*out, draw(lines), 0o644)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// record runs the tree in a home of its own and notes what is printed.
func record(leasehold string) (lines []line, err error) {
	binary, err := filepath.Abs(leasehold)
	if err != nil {
		return nil, err
	}
	home, err := os.MkdirTemp("", "rec")
	if err != nil {
		return nil, err
	}
	env := []string{
		"PATH=" + filepath.Dir(binary) + string(filepath.ListSeparator) + os.Getenv("PATH"), "HOME=" + home, "XDG_STATE_HOME=" + home, "XDG_RUNTIME_DIR=" + home, "COLUMNS=110",
	}
	defer func() {
		stop := exec.Command(binary, "stop")
		stop.Env = env
		err = errors.Join(err, stop.Run(), os.RemoveAll(home))
	}()
	cmd := exec.Command(binary, "dispatch", manifest)
	cmd.Env, cmd.Stderr = env, os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines = append(lines, line{0, "$ leasehold dispatch " + manifest})
	for in := bufio.NewScanner(stdout); in.Scan(); {
		lines = append(lines, line{time.Since(began), strings.ReplaceAll(in.Text(), home, "~/.local/state")})
	}
	return lines, cmd.Wait()
}

const (
	width      = 1010 // of the picture
	charHeight = 20
	margin     = 16
)

// draw makes the picture. Where animations are not shown, all lines are there.
func draw(lines []line) []byte {
	var b strings.Builder
	height := 2*margin + charHeight*len(lines)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="Two agents contend for one file">`+"\n", width, height, width, height)
	b.WriteString(`<style>
text { font: 14px ui-monospace, Menlo, Consolas, monospace; fill: #d0d7de; white-space: pre; animation: appear 1ms backwards }
.prompt { fill: #ffffff; font-weight: bold }
.waits { fill: #e3b341 }
.holds { fill: #7ee787 }
@keyframes appear { from { opacity: 0 } }
</style>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
`)
	for i, l := range lines {
		class := ""
		switch {
		case i == 0:
			class = "prompt"
		case strings.Contains(l.text, " waits for "):
			class = "waits"
		case strings.Contains(l.text, " holds run lease ") && !strings.Contains(l.text, " no longer "):
			class = "holds"
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" class="%s" style="animation-delay:%dms">`, margin, margin+charHeight*(i+1)-5, class, l.at.Milliseconds())
		_ = xml.EscapeText(&b, []byte(l.text)) // cannot fail: a Builder takes all
		b.WriteString("</text>\n")
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}
