package setup

import (
	"bytes"
	"strings"
)

// markedText edits a text that belongs to the user. It writes a block for models
// between two marks.
type markedText struct{}

const (
	beginMark = "<!-- leasehold:begin; written by leasehold setup, removed by leasehold setup --uninstall -->"
	endMark   = "<!-- leasehold:end -->"
)

// protocol tells an agent what the descriptions of the tools do not say.
const protocol = `## Leases

Other agents work on the same files. Leasehold (the MCP server "leasehold") lets one agent at a time change a file.

- Before you change a file, call run_lease_acquire with its path, such as {"path": "src/app.ts"}, and a reason. If a
  change needs several files, take all of them in one call of lease_acquire_many.
- Set ttl_secs to about twice as long as the change takes: 60 for an edit, 600 for a long build. Call lease_renew
  before the lease expires if you need longer. Use keep_alive only if you cannot say how long: the lease then lasts
  until you release it or your session ends.
- If another agent holds the lease, the reply names it and says until when. Do something else first, or call again
  with wait_secs up to 50 to wait in line. Never change the file without the lease.
- Call run_lease_release as soon as the change is written.
- If a reply says that you lost a lease, stop writing, acquire it again, and read the file again.
- If you are a sub-agent, pass your name in the argument "as", so that you and the other sub-agents are kept apart.
`

// find returns the place of the block, including its marks.
func (markedText) find(text []byte) (start, end int, ok bool) {
	start = bytes.Index(text, []byte("<!-- leasehold:begin"))
	if start < 0 {
		return 0, 0, false
	}
	n := bytes.Index(text[start:], []byte(endMark))
	if n < 0 {
		return 0, 0, false
	}
	return start, start + n + len(endMark), true
}

func (l markedText) check(text []byte) error {
	start := bytes.Index(text, []byte("<!-- leasehold:begin"))
	if _, _, ok := l.find(text); start >= 0 && !ok {
		line, column := position(text, start)
		return &brokenError{line, column, "the block of leasehold has no end: " + endMark}
	}
	return nil
}

func (l markedText) ensure(text []byte, want config) ([]edit, error) {
	if err := l.check(text); err != nil {
		return nil, err
	}
	eol := eolOf(text)
	ours := strings.ReplaceAll(beginMark+"\n"+want.block+endMark, "\n", eol)
	if start, end, ok := l.find(text); ok {
		if string(text[start:end]) == ours {
			return nil, nil
		}
		return []edit{{Kind: block, At: start, Del: string(text[start:end]), Ins: ours}}, nil
	}
	ours += eol
	switch {
	case len(text) == 0:
	case !bytes.HasSuffix(text, []byte("\n")):
		ours = eol + eol + ours
	default:
		ours = eol + ours
	}
	return []edit{{Kind: block, Made: 1, At: len(text), Ins: ours}}, nil
}

func (l markedText) undo(text []byte, e edit) ([]byte, bool) {
	start, end, ok := l.find(text)
	if !ok {
		return nil, false
	}
	if e.Made == 0 {
		return splice(text, start, end-start, e.Del), true
	}
	// Also remove the line ends that were written around the block, if they are still there.
	first, last, _ := l.find([]byte(e.Ins))
	if around := e.Ins[:first]; bytes.HasSuffix(text[:start], []byte(around)) {
		start -= len(around)
	}
	if around := e.Ins[last:]; bytes.HasPrefix(text[end:], []byte(around)) {
		end += len(around)
	}
	return splice(text, start, end-start, ""), true
}
