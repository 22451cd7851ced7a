package terminal

import (
	"strings"
	"unicode"
)

// Printable keeps what agents wrote from speaking to the terminal.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, s)
}
