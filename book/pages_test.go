package book

import (
	"bufio"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/leasehold/leasehold/spotlights"
)

// A page is one Markdown file, by its path from the root of the repository.
type page struct {
	file  string
	lines []line
}

type line struct {
	n     int
	text  string
	fence string // what the fence that it stands in says; "" for prose
	in    bool
}

// pages are the pages of the book and what stands beside it.
func pages(t *testing.T) []page {
	t.Helper()
	files := []string{"README.md", "CHANGELOG.md"}
	err := filepath.WalkDir("src", func(name string, d fs.DirEntry, err error) error {
		if err == nil && path.Ext(name) == ".md" {
			files = append(files, path.Join("book", filepath.ToSlash(name)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []page
	for _, file := range files {
		all = append(all, read(t, file))
	}
	return all
}

func read(t *testing.T, file string) page {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	p := page{file: file}
	in, fence := false, ""
	lines := bufio.NewScanner(strings.NewReader(string(b)))
	for n := 1; lines.Scan(); n++ {
		text := lines.Text()
		if rest, ok := strings.CutPrefix(strings.TrimSpace(text), "```"); ok {
			in = !in
			fence = rest
			if !in {
				fence = ""
			}
			p.lines = append(p.lines, line{n: n})
			continue
		}
		p.lines = append(p.lines, line{n, text, fence, in})
	}
	if in {
		t.Errorf("%s: a fence is not closed", file)
	}
	return p
}

// prose yields the lines outside fences, without their code spans.
func (p page) prose() (lines []line) {
	for _, l := range p.lines {
		if !l.in {
			l.text = codeSpan.ReplaceAllString(l.text, "`…`")
			lines = append(lines, l)
		}
	}
	return lines
}

var (
	codeSpan    = regexp.MustCompile("`[^`]*`")
	link        = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	anchorStart = regexp.MustCompile(`ANCHOR: *([\w-]+)`)
	anchorEnd   = regexp.MustCompile(`ANCHOR_END: *([\w-]+)`)
)

// Every link leads to a file and a heading that are there. Links to other
// sites are few, and go to where a document lives.
func TestLinks(t *testing.T) {
	sites := []string{"https://keepachangelog.com/", "https://semver.org/", "https://rust-lang.github.io/mdBook/", "https://modelcontextprotocol.io/"}
	headings := make(map[string][]string)
	for _, p := range pages(t) {
		headings[p.file] = slugs(p)
	}
	for _, p := range pages(t) {
		for _, l := range p.prose() {
			for _, m := range link.FindAllStringSubmatch(l.text, -1) {
				target := m[1]
				if strings.Contains(target, "://") {
					if !slices.ContainsFunc(sites, func(s string) bool { return strings.HasPrefix(target, s) }) {
						t.Errorf("%s:%d: link to a site that is not in the list: %s", p.file, l.n, target)
					}
					continue
				}
				file, slug, _ := strings.Cut(target, "#")
				to := p.file
				if file != "" {
					to = path.Join(path.Dir(p.file), file)
				}
				if _, err := os.Stat(filepath.Join("..", filepath.FromSlash(to))); err != nil {
					t.Errorf("%s:%d: link to %s, which is not there", p.file, l.n, to)
				} else if slug != "" && !slices.Contains(headings[to], slug) {
					t.Errorf("%s:%d: %s has no heading #%s; it has %v", p.file, l.n, to, slug, headings[to])
				}
			}
		}
	}
}

// slugs are the ids that mdBook gives the headings of a page.
func slugs(p page) (ids []string) {
	for _, l := range p.lines {
		if l.in || !strings.HasPrefix(l.text, "#") {
			continue
		}
		var b strings.Builder
		for _, c := range strings.ToLower(strings.TrimSpace(strings.TrimLeft(l.text, "#"))) {
			switch {
			case unicode.IsLetter(c), unicode.IsDigit(c), c == '_', c == '-':
				b.WriteRune(c)
			case unicode.IsSpace(c):
				b.WriteByte('-')
			}
		}
		ids = append(ids, b.String())
	}
	return ids
}

// What a page shows of a file is what stands there, so that it reads on a forge
// as it does rendered: below a comment that names the file, and an anchor in it
// if it is a part, stands a fence with its text, or the text itself up to the
// comment that ends it.
func TestCodeInPlace(t *testing.T) {
	found := 0
	for _, p := range pages(t) {
		text, n, problems := inPlace(t, p)
		found += n
		for _, problem := range problems {
			t.Error(problem)
		}
		if name := filepath.Join("..", filepath.FromSlash(p.file)); *update {
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if have, err := os.ReadFile(name); err != nil {
			t.Error(err)
		} else if line, differ := firstDifference(string(have), text); differ {
			t.Errorf("%s does not show what its source has, run just docs: %s", p.file, line)
		}
	}
	if found == 0 {
		t.Error("no page shows any code")
	}
}

var (
	source    = regexp.MustCompile(`^<!-- from (\S+) -->$`)
	sourceEnd = "<!-- end -->"
)

// inPlace is a page with what it shows of files as the files have it.
func inPlace(t *testing.T, p page) (text string, found int, problems []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(p.file)))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		out.WriteString(lines[i] + "\n")
		m := source.FindStringSubmatch(lines[i])
		if m == nil {
			continue
		}
		found++
		shown, problem := included(p, m[1])
		end := sourceEnd
		if i+1 < len(lines) && strings.HasPrefix(lines[i+1], "```") {
			end = "```"
			i++
			out.WriteString(lines[i] + "\n")
		}
		length := slices.Index(lines[i+1:], end)
		switch {
		case problem != "":
		case length < 0:
			problem = "nothing ends what is shown of " + m[1]
		case strings.TrimSpace(shown) == "" || strings.Contains(shown, "\n"+end+"\n"):
			problem = m[1] + " has nothing to show, or what ends it here"
		}
		if problem != "" {
			problems = append(problems, p.file+": "+problem)
			continue
		}
		out.WriteString(strings.TrimRight(shown, "\n") + "\n")
		i += length
	}
	return out.String(), found, problems
}

func included(p page, what string) (text, problem string) {
	file, anchor, _ := strings.Cut(what, ":")
	name := path.Join(path.Dir(p.file), file)
	if strings.HasPrefix(name, "..") {
		return "", name + " is not in the repository"
	}
	b, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(name)))
	if err != nil {
		return "", err.Error()
	}
	if anchor == "" {
		return string(b), ""
	}
	if anchor[0] >= '0' && anchor[0] <= '9' {
		return "", what + " counts lines, which move; use an anchor"
	}
	var out []string
	open, closed := false, false
	for text := range strings.Lines(string(b)) {
		if m := anchorEnd.FindStringSubmatch(text); m != nil && m[1] == anchor {
			closed = open
			open = false
		} else if m := anchorStart.FindStringSubmatch(text); m != nil && m[1] == anchor {
			open = true
		} else if open {
			out = append(out, text)
		}
	}
	if !closed {
		return "", name + " has no anchor " + anchor
	}
	return strings.Join(out, ""), ""
}

// The summary lists every page once. What is included in others has no place
// in it.
func TestSummaryListsEveryPage(t *testing.T) {
	listed := make(map[string]int)
	for _, l := range read(t, "book/src/SUMMARY.md").lines {
		for _, m := range link.FindAllStringSubmatch(l.text, -1) {
			listed[path.Join("book/src", m[1])]++
		}
	}
	part := make(map[string]bool)
	for _, p := range pages(t) {
		for _, l := range p.lines {
			if m := source.FindStringSubmatch(l.text); m != nil {
				file, _, _ := strings.Cut(m[1], ":")
				part[path.Join(path.Dir(p.file), file)] = true
			}
		}
	}
	for _, p := range pages(t) {
		if !strings.HasPrefix(p.file, "book/src/") || p.file == "book/src/SUMMARY.md" || part[p.file] {
			continue
		}
		if listed[p.file] != 1 {
			t.Errorf("SUMMARY.md lists %s %d times", p.file, listed[p.file])
		}
		delete(listed, p.file)
	}
	for file := range listed {
		t.Errorf("SUMMARY.md lists %s, which is no page", file)
	}
}

// The page of stories has each of them, in the order of its table.
func TestEveryStoryIsShown(t *testing.T) {
	text, err := os.ReadFile("src/stories.md")
	if err != nil {
		t.Fatal(err)
	}
	rest := string(text)
	for _, s := range spotlights.Stories() {
		var ok bool
		if _, rest, ok = strings.Cut(rest, "<!-- from stories/"+s.Name+".txt -->"); !ok {
			t.Fatalf("stories.md does not show %s, or not after the stories before it", s.Name)
		}
	}
}

// Every page begins with its one title.
func TestEveryPageHasATitle(t *testing.T) {
	for _, p := range pages(t) {
		if strings.HasPrefix(p.file, "book/src/stories/") || p.file == "book/src/SUMMARY.md" {
			continue
		}
		titles := 0
		for _, l := range p.lines {
			if !l.in && strings.HasPrefix(l.text, "# ") {
				titles++
			}
		}
		if titles != 1 || len(p.lines) == 0 || !strings.HasPrefix(p.lines[0].text, "# ") {
			t.Errorf("%s does not begin with its one title", p.file)
		}
	}
}
