package view

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/logs"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch"
)

// frame is the number of lines around a list or a page: the title, the head, notes and
// keys.
const frame = 5

// room returns how many lines of a list or a page fit.
func (m *top) room() int { return max(1, m.height-frame) }

func (m *top) paint() terminal.Paint { return terminal.Paint{On: m.on, Width: m.width} }

// draw returns the whole screen.
func (m *top) draw() string {
	p := m.paint()
	lines := []string{m.title(p)}
	if m.detail != nil {
		lines = append(lines, m.drawDetail(p)...)
	} else {
		lines = append(lines, m.drawList(p)...)
	}
	for len(lines) < m.height-2 {
		lines = append(lines, "")
	}
	lines = append(lines[:max(1, m.height-2)], m.drawSaid(p), p.Dim(m.keys()))
	for i, line := range lines {
		lines[i] = terminal.Clip(line, m.width)
	}
	return strings.Join(lines, "\n")
}

// title returns the first line: the run, its age, and the tabs with their counts.
func (m *top) title(p terminal.Paint) string {
	text, age := "run "+terminal.Printable(m.name), ""
	switch r := m.seen.run; {
	case m.lost != "" && !m.seen.at.IsZero():
		age = ", as it was " + terminal.Brief(time.Since(m.seen.at)) + " ago"
	case r.EndedAt != nil:
		age = ", ended " + terminal.Brief(time.Since(*r.EndedAt)) + " ago"
	case r.Run != "":
		age = ", " + terminal.Brief(time.Since(r.CreatedAt)) + " old"
	}
	var tabs strings.Builder
	shown, ended := m.actors()
	living := len(shown)
	if m.all {
		living -= ended
	}
	counts := []int{living, len(m.seen.leases), len(m.seen.queues.Queues)}
	for t := range topTabs {
		tab := fmt.Sprintf("%d %s %d", t+1, t, counts[t])
		if m.cut(t) {
			tab += "+"
		}
		if t == m.tab {
			tab = "[" + tab + "]"
		}
		tabs.WriteString("  " + tab)
	}
	if terminal.Width(text+age+tabs.String()) > m.width {
		age = "" // leasehold tree shows it, too
	}
	if room := m.width - terminal.Width(tabs.String()); room > 8 {
		text = terminal.Clip(text, room)
	}
	return p.Bold(text + age + tabs.String())
}

// cut reports whether a list has only the first of what there is.
func (m *top) cut(t topTab) bool {
	return t == topLeases && m.seen.more || t == topQueues && m.seen.queues.More
}

func (m *top) drawSaid(p terminal.Paint) string {
	switch {
	case m.question != nil:
		return p.Bold(m.question.text + " y or n")
	case m.typing:
		return "/" + terminal.Printable(m.search) + "_"
	case m.lost != "":
		return p.Red(terminal.Printable(m.lost))
	case m.said != "":
		return terminal.Printable(m.said)
	case m.search != "" && m.detail == nil:
		return "only with " + strconv.Quote(m.search) + "; esc shows all"
	default:
		return ""
	}
}

func (m *top) keys() string {
	switch {
	case m.question != nil:
		return "y does it, any other key does not"
	case m.typing:
		return "enter keeps it, esc ends it"
	case m.detail != nil && m.detail.logs:
		return "esc back  ↑↓ scroll  G follow"
	case m.detail != nil && m.detail.tab == topActors:
		return "esc back  ↑↓ scroll  l output  x cancel"
	case m.detail != nil && m.detail.tab == topQueues:
		return "esc back  ↑↓ scroll  d redrive"
	case m.detail != nil:
		return "esc back  ↑↓ scroll  x revoke"
	case m.tab == topActors:
		return "q ends  tab next  / search  enter one  l output  x cancel"
	case m.tab == topQueues:
		return "q ends  tab next  / search  enter tasks  d redrive"
	default:
		return "q ends  tab next  / search  enter one  x revoke"
	}
}

// mark precedes the chosen row. The other rows are indented by its width.
const mark = "> "

func (m *top) drawList(p terminal.Paint) []string {
	if m.seen.problem != "" {
		return terminal.Fold(terminal.Printable(m.seen.problem), m.width)
	}
	rows := m.rows()
	at, room := m.at(rows), m.room()
	table := m.table()
	p.Width -= terminal.Width(mark)
	all, notes := table.Lines(p)
	lines := []string{"  " + all[0]}
	from := max(0, min(at-room/2, len(rows)-room))
	for i := from; i < min(len(rows), from+room); i++ {
		before := "  "
		if i == at {
			before = p.Bold(mark)
		}
		lines = append(lines, before+all[1+rows[i].index])
	}
	if len(rows) == 0 {
		nothing := "no " + m.tab.String()
		if m.search != "" {
			nothing += " with " + strconv.Quote(m.search)
		}
		lines = []string{nothing}
	}
	if more := len(rows) - from - room; more > 0 {
		notes = append([]string{p.Dim(fmt.Sprintf("%d more below", more))}, notes...)
	}
	if m.cut(m.tab) {
		all := [...]string{topActors: "tree", topLeases: "leases", topQueues: "queue"}[m.tab]
		notes = append(notes, p.Dim("there are more than are shown here: leasehold "+all+" shows all"))
	}
	if _, ended := m.actors(); ended > 0 && m.tab == topActors {
		notes = append([]string{p.Dim(fmt.Sprintf("%d ended; a %s them", ended, pick(m.all, "hides", "shows")))}, notes...)
	}
	if len(notes) > 1 {
		notes = []string{strings.Join(notes, "; ")}
	}
	return append(lines, notes...)
}

// table returns the table of the current list.
func (m *top) table() *terminal.Table {
	switch m.tab {
	case topActors:
		shown, _ := m.actors()
		return drawActors(shown)
	case topLeases:
		return leaseTable(m.seen.leases, time.Since(m.seen.at))
	default:
		return queueTable(m.seen.queues.Queues)
	}
}

func (m *top) drawDetail(p terminal.Paint) []string {
	d := m.detail
	lines := d.lines
	if !d.logs && d.tab != topQueues {
		lines = m.detailLines(p)
		d.lines = lines
	}
	room := m.room()
	last := max(0, len(lines)-room)
	from := min(d.scroll, last)
	if d.logs && !d.moved {
		from = last
	}
	shown := append([]string{p.Dim(m.heading(d))}, lines[from:min(len(lines), from+room)]...)
	if more := len(lines) - from - room; more > 0 {
		shown = append(shown, p.Dim(fmt.Sprintf("%d more below", more)))
	}
	return shown
}

func (m *top) heading(d *topDetail) string {
	switch {
	case d.logs:
		return "output of " + terminal.Printable(d.id)
	case d.tab == topActors:
		return "actor " + terminal.Printable(d.id)
	case d.tab == topLeases:
		return "lease"
	default:
		return "tasks of queue " + terminal.Printable(d.id)
	}
}

// A detailPage is the page of one actor or lease: a name and a value a line.
type detailPage struct {
	paint terminal.Paint
	lines []string
}

func (d *detailPage) line(name, value string) {
	if value == "" {
		return
	}
	for i, part := range terminal.Fold(terminal.Printable(value), max(1, d.paint.Width-11)) {
		if i > 0 {
			name = ""
		}
		d.lines = append(d.lines, d.paint.Bold(fmt.Sprintf("%-10s", name))+" "+part)
	}
}

// more says how many others there are, if any.
func (d *detailPage) more(n int) {
	if n > 0 {
		d.line("", fmt.Sprintf("and %d more", n))
	}
}

// detailLines returns the page of one actor or lease.
func (m *top) detailLines(p terminal.Paint) []string {
	d := detailPage{paint: p}
	if m.detail.tab != topLeases {
		m.actorDetail(&d)
		return d.lines
	}
	m.leaseDetail(&d)
	name := "history"
	for _, e := range m.detail.history {
		d.line(name, fmt.Sprintf("%s ago: %s", terminal.Brief(time.Since(e.At)), e.Text))
		name = ""
	}
	return d.lines
}

func (m *top) leaseDetail(d *detailPage) {
	i := slices.IndexFunc(m.seen.leases, func(l shownLease) bool { return l.id() == m.detail.id })
	if i < 0 {
		d.lines = []string{"nobody holds it any more"}
		return
	}
	l, since := m.seen.leases[i], time.Since(m.seen.at)
	d.line("lease", l.Name+l.Key)
	d.line("scope", strings.TrimSpace(l.Scope+" "+l.Layer))
	if l.For != "" {
		d.line("holder", fmt.Sprintf("nobody; %s, which is first in line, for %s", l.who(), terminal.Remaining(l.ExpiresIn, since)))
		return
	}
	d.line("holder", l.Holder.String())
	d.line("where", l.Holder.shownOrigin.String())
	d.line("held for", terminal.Brief(l.Held.Duration()+since))
	if l.KeepAlive {
		d.line("expires", "kept alive while its holder is connected")
	} else {
		d.line("expires", "in "+terminal.Remaining(l.ExpiresIn, since))
	}
	d.line("token", strconv.FormatUint(l.Token, 10))
	d.line("waiting", strconv.Itoa(max(l.InLine, len(l.Waiters))))
	for n, w := range l.Waiters {
		d.line("", fmt.Sprintf("%d. %s, for %s", n+1, w, terminal.Brief(w.Waiting.Duration()+since)))
	}
	d.more(l.InLine - len(l.Waiters))
	d.line("offered to", l.OfferedTo)
	d.line("reason", l.Reason)
}

func (m *top) actorDetail(d *detailPage) {
	i := slices.IndexFunc(m.seen.run.Actors, func(a ShownActor) bool { return a.Path == m.detail.id })
	if i < 0 {
		d.lines = []string{"it is forgotten"}
		return
	}
	a := m.seen.run.Actors[i]
	d.line("path", dispatch.TypedPath(a.Path))
	d.line("role", a.Role)
	d.line("state", a.state())
	d.line("note", a.note())
	d.line("agent", strings.TrimSpace(a.Agent+" "+a.Model))
	d.line("where", a.shownOrigin.String())
	d.line("age", a.age())
	if cost := a.cost(); cost != "-" {
		d.line("cost", cost)
	}
	d.line("holds", strconv.Itoa(a.Leases))
	for _, l := range a.Holds {
		d.line("", l.String())
	}
	d.more(a.Leases - len(a.Holds))
	d.line("waits for", strconv.Itoa(a.Waiting))
	for _, l := range a.WaitsFor {
		d.line("", fmt.Sprintf("%s, %s%s", l, pick(l.Reserved, reservedFor, "held by "), l.Holder))
	}
	d.more(a.Waiting - len(a.WaitsFor))
}

// shownOutput limits the lines of an agent's output on a page, and shownTasks the tasks of
// a queue.
const (
	shownOutput = 2000
	shownTasks  = 500
)

// readPage reads the parts of a page that topSeen does not have.
func (m *top) readPage() tea.Cmd {
	d := m.detail
	if d == nil || !d.logs && d.tab == topActors {
		return nil
	}
	if d.tab == topLeases {
		return m.readHistory(d)
	}
	width, name, on := m.width, m.name, m.on
	return func() tea.Msg {
		if d.logs {
			return topPage{d, m.output(d.id)}
		}
		answer, err := m.link.call(m.ctx, "operator_queue_list", map[string]any{"run": name, "queue": d.id, "limit": shownTasks})
		if err != nil {
			return topPage{d, terminal.Fold(terminal.Printable(err.Error()), width)}
		}
		text, err := drawTasks(shownTasks, liveTasks)(answer.Object, 0, terminal.Paint{On: on, Width: width})
		if err != nil {
			text = err.Error()
		}
		return topPage{d, strings.Split(strings.TrimSuffix(text, "\n"), "\n")}
	}
}

// readHistory reads the events of a lease after those that were read before.
func (m *top) readHistory(d *topDetail) tea.Cmd {
	scope, layer, key := lease(d.id)
	since := d.since
	args := map[string]any{"run": m.name, "key": key, "scope": scope, "since": since}
	if layer != "" {
		args["layer"] = layer
	}
	return func() tea.Msg {
		read := topHistory{of: d, since: since}
		answer, err := m.link.call(m.ctx, "operator_events", args)
		if err != nil {
			return topDone{err.Error()}
		}
		page, err := connection.Decode[struct {
			Events []shownEvent
			Next   uint64
			More   bool
		}](answer.Object)
		if err != nil {
			return topDone{err.Error()}
		}
		read.next, read.more, read.events = page.Next, page.More, page.Events
		return read
	}
}

// output returns the last lines that a launched agent wrote.
func (m *top) output(path string) (lines []string) {
	stdout, stderr, running, err := logs.Last(m.ctx, m.name, path, shownOutput)
	if err != nil {
		return []string{terminal.Printable(err.Error())}
	}
	for _, line := range stdout {
		lines = append(lines, logs.Clean(line))
	}
	if len(stderr) > 0 {
		lines = append(lines, "", "stderr:")
		for _, line := range stderr {
			lines = append(lines, logs.Clean(line))
		}
	}
	if len(lines) == 0 && running {
		return []string{"nothing yet"}
	}
	if !running {
		lines = append(lines, "", "it has ended")
	}
	return lines
}
