package view

import (
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/leasehold/leasehold/dispatch/client"
)

var PauseAfter = pauseAfter

// A TestTop is a top without a terminal.
type TestTop struct {
	t *testing.T
	*top
	Ended bool
}

func OpenTop(t *testing.T, c *client.Client, run string, width, height int) *TestTop {
	m := newTop(t.Context(), &topLink{c: c}, run, false)
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	return &TestTop{t: t, top: m}
}

// Look sees the run after it has changed.
func (m *TestTop) Look() {
	m.t.Helper()
	msg := m.looks()
	if lost, ok := msg.(topLost); ok {
		m.t.Fatal(lost.cause)
	}
	m.Update(msg)
}

var keyCodes = map[string]rune{
	"enter": tea.KeyEnter, "esc": tea.KeyEscape, "tab": tea.KeyTab, "up": tea.KeyUp, "down": tea.KeyDown,
	"pgdown": tea.KeyPgDown, "backspace": tea.KeyBackspace,
}

// Press presses keys: those that have a name, or each of a text.
func (m *TestTop) Press(keys ...string) {
	for _, key := range keys {
		if code, ok := keyCodes[key]; ok {
			m.key(tea.Key{Code: code})
			continue
		}
		for _, r := range key {
			m.key(tea.Key{Code: r, Text: string(r)})
		}
	}
}

func (m *TestTop) key(key tea.Key) {
	_, cmd := m.Update(tea.KeyPressMsg(key))
	if cmd == nil {
		return
	}
	msg := cmd()
	if _, quit := msg.(tea.QuitMsg); quit {
		m.Ended = true
	}
	m.Update(msg)
}

func (m *TestTop) Screen() string { return m.View().Content + "\n" }
