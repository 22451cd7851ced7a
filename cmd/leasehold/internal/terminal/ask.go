package terminal

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
)

// CanAsk reports whether a person types what is read from in.
func CanAsk(in io.Reader) bool {
	f, ok := in.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// Ask asks a question, and reports whether the answer was yes. No answer is a no. It
// returns an error only if the context ends first.
func Ask(ctx context.Context, in io.Reader, out io.Writer, question string) (yes bool, err error) {
	fmt.Fprintf(out, "%s [y/N] ", question)
	answer, err := Interruptible(ctx, func() (string, error) {
		return bufio.NewReader(in).ReadString('\n')
	})
	if err != nil {
		fmt.Fprintln(out) // nobody has typed one
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", ctx.Err()
}
