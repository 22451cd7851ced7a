package view

import (
	"fmt"
	"io"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch"
)

// press handles a key.
func (m *top) press(key tea.KeyPressMsg) tea.Cmd {
	name := key.String()
	switch {
	case name == "ctrl+c":
		return tea.Quit
	case name == "ctrl+z":
		return tea.Exec(suspension{}, func(error) tea.Msg { return nil })
	case m.question != nil:
		q := m.question
		m.question = nil
		if name == "y" {
			return m.do(q)
		}
		m.said = "not done"
		return nil
	case m.typing:
		m.typeSearch(key)
		return nil
	}
	m.said = ""
	if m.detail != nil {
		return m.pressDetail(name)
	}
	rows := m.rows()
	at := m.at(rows)
	switch name {
	case "q":
		return tea.Quit
	case "1", "2", "3":
		m.tab = topTab(name[0] - '1')
	case "tab", "right":
		m.tab = (m.tab + 1) % topTabs
	case "shift+tab", "left":
		m.tab = (m.tab + topTabs - 1) % topTabs
	case "/":
		m.typing = true
	case "esc":
		m.search = ""
	case "a":
		m.all = !m.all
	case "enter":
		return m.open(rows, at, false)
	case "l":
		if m.tab == topActors {
			return m.open(rows, at, true)
		}
	case "x":
		m.ask(rows, at)
	case "d":
		m.ask(rows, at)
	default:
		if to, ok := moved(name, at, len(rows), m.room()); ok && len(rows) > 0 {
			m.chosen[m.tab] = rows[to].id
		}
	}
	return nil
}

// moved returns the line to which a key moves from line at.
func moved(key string, at, lines, page int) (to int, ok bool) {
	switch key {
	case "up", "k":
		to = at - 1
	case "down", "j":
		to = at + 1
	case "pgup", "ctrl+b":
		to = at - page
	case "pgdown", "ctrl+f", "space":
		to = at + page
	case "home", "g":
		to = 0
	case "end", "G":
		to = lines - 1
	default:
		return at, false
	}
	return min(max(to, 0), max(lines-1, 0)), true
}

func (m *top) typeSearch(key tea.KeyPressMsg) {
	switch key.String() {
	case "enter":
		m.typing = false
	case "esc":
		m.typing, m.search = false, ""
	case "backspace":
		if runes := []rune(m.search); len(runes) > 0 {
			m.search = string(runes[:len(runes)-1])
		}
	default:
		m.search += key.Text
	}
}

func (m *top) pressDetail(name string) tea.Cmd {
	d := m.detail
	switch name {
	case "q", "esc", "enter", "left":
		m.detail = nil
		return nil
	case "l":
		if d.tab == topActors && !d.logs {
			m.detail = &topDetail{tab: d.tab, id: d.id, logs: true}
			return m.readPage()
		}
	case "x", "d":
		m.ask([]topRow{{id: d.id}}, 0)
	default:
		last := max(0, len(d.lines)-m.room())
		from := d.scroll
		if d.logs && !d.moved {
			from = last
		}
		if to, ok := moved(name, from, last+1, m.room()); ok {
			d.scroll, d.moved = to, to < last
		}
	}
	return nil
}

// open opens the page of one row.
func (m *top) open(rows []topRow, at int, logs bool) tea.Cmd {
	if len(rows) == 0 {
		return nil
	}
	m.detail = &topDetail{tab: m.tab, id: rows[at].id, logs: logs}
	return m.readPage()
}

// ask asks before it cancels an actor, revokes a lease or redrives a queue.
func (m *top) ask(rows []topRow, at int) {
	if len(rows) == 0 {
		return
	}
	id := rows[at].id
	tab := m.tab
	if m.detail != nil {
		tab = m.detail.tab
	}
	switch tab {
	case topActors:
		i := slices.IndexFunc(m.seen.run.Actors, func(a ShownActor) bool { return a.Path == id })
		if i < 0 || m.seen.run.Actors[i].EndedAt != nil {
			m.said = fmt.Sprintf("%s has ended", id)
			return
		}
		text := fmt.Sprintf("cancel %s and all below it?", terminal.Printable(id))
		if id == dispatch.RootPath {
			text = fmt.Sprintf("end run %s and all its actors?", m.name)
		}
		m.question = &topQuestion{text, "operator_actor_end", map[string]any{"run": m.name, "path": id, "reason": "cancelled by the operator"}}
	case topLeases:
		i := slices.IndexFunc(m.seen.leases, func(l shownLease) bool { return l.id() == id })
		if i < 0 {
			m.said = "nobody holds it any more"
			return
		}
		l := m.seen.leases[i]
		if l.For != "" {
			m.said = fmt.Sprintf("nobody holds it; it is %s, which is first in line", l.who())
			return
		}
		next := ""
		if n := max(l.InLine, len(l.Waiters)); n > 0 {
			next = fmt.Sprintf(" (%d waiting)", n)
		}
		m.question = &topQuestion{
			fmt.Sprintf("revoke %s lease %s of %s%s?", l.Scope, terminal.Printable(l.Name+l.Key), terminal.Printable(l.Holder.Path), next),
			"operator_lease_revoke",
			map[string]any{
				"run": m.name, "scope": l.Scope, "layer": l.Layer, "key": l.Name + l.Key, "holder": l.Holder.Path,
				"reason": "taken away by a person who watched the run",
			},
		}
	case topQueues:
		i := slices.IndexFunc(m.seen.queues.Queues, func(q shownQueue) bool { return q.Queue == id })
		if i < 0 || m.seen.queues.Queues[i].Dead == 0 {
			m.said = fmt.Sprintf("queue %s has no dead tasks", id)
			return
		}
		m.question = &topQuestion{
			fmt.Sprintf("redrive %s of queue %s?", terminal.Plural(m.seen.queues.Queues[i].Dead, "dead task"), terminal.Printable(id)),
			"operator_queue_redrive",
			map[string]any{"run": m.name, "queue": id},
		}
	}
}

// A topRow is a row of a list.
type topRow struct {
	id    string // of the actor, lease or queue
	words string // the text that a search looks at
	index int    // in the list of topSeen
}

// rows returns the rows of the current list that match the search.
func (m *top) rows() (rows []topRow) {
	add := func(i int, id string, words ...string) {
		r := topRow{id, strings.ToLower(strings.Join(words, " ")), i}
		if strings.Contains(r.words, strings.ToLower(m.search)) {
			rows = append(rows, r)
		}
	}
	switch m.tab {
	case topActors:
		shown, _ := m.actors()
		for i, a := range shown {
			words := []string{a.Path, a.Role, a.state(), a.note()}
			for _, l := range slices.Concat(a.Holds, a.WaitsFor) {
				words = append(words, l.String())
			}
			add(i, a.Path, words...)
		}
	case topLeases:
		for i, l := range m.seen.leases {
			words := []string{l.Name, l.Key, l.Scope, l.Layer, l.who()}
			for _, w := range l.Waiters {
				words = append(words, w.String())
			}
			add(i, l.id(), words...)
		}
	case topQueues:
		for i, q := range m.seen.queues.Queues {
			add(i, q.Queue, q.Queue)
		}
	}
	return rows
}

// id distinguishes a lease from those of other layers, and from those that share its key.
func (l shownLease) id() string {
	id := l.Scope + "\x00" + l.Layer + "\x00" + l.Name + l.Key
	if l.Mode == "shared" {
		id += "\x00" + l.Holder.String()
	}
	return id
}

// lease returns the parts of a lease's id, except the holder.
func lease(id string) (scope, layer, key string) {
	parts := strings.SplitN(id, "\x00", 4)
	return parts[0], parts[1], parts[2]
}

// at returns the index of the chosen row, or 0 if that row is gone.
func (m *top) at(rows []topRow) int {
	return max(0, slices.IndexFunc(rows, func(r topRow) bool { return r.id == m.chosen[m.tab] }))
}

// A suspension stops top as Ctrl-Z stops other programs: [tea.Suspend] would wait for ever
// where no shell continues it.
type suspension struct{}

func (suspension) Run() error          { return terminal.Suspend() }
func (suspension) SetStdin(io.Reader)  {}
func (suspension) SetStdout(io.Writer) {}
func (suspension) SetStderr(io.Writer) {}
