package terminal

import (
	"strings"
	"unicode"
)

// Printable replaces control characters, so that texts of agents cannot control
// the terminal.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, s)
}
