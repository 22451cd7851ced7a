package connection

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server"
)

// A Reply prints the answer to a command's call: a text for people, or with --json the
// object.
type Reply struct {
	JSON bool
	Lost string // what to do if the answer, a secret, cannot be printed; "": ask again
}

// OldIsVoid is what to do if a token that replaces another was not shown.
const OldIsVoid = "the new token was not shown, and the old one is void: call this again"

// Flag adds --json to a command.
func (r *Reply) Flag(cmd *cobra.Command, usage string) {
	cmd.Flags().BoolVar(&r.JSON, "json", false, usage)
}

// A Telling returns what people read of an answer.
type Telling = func(client.Answer) (string, error)

// Line tells the line of an answer that is for people.
func Line(answer client.Answer) (string, error) { return answer.Line(), nil }

// IssuedToken tells the token that was issued.
func IssuedToken(answer client.Answer) (string, error) {
	issued, err := Decode[struct{ Token string }](answer.Object)
	return issued.Token, err
}

// Call makes one call as the operator, as [AsOperator] does, and prints its answer.
func (r *Reply) Call(cmd *cobra.Command, start bool, tool string, args map[string]any, tell Telling) error {
	answer, err := AsOperator(cmd, start, tool, args)
	if err != nil {
		return r.Refused(cmd, err)
	}
	text := ""
	if !r.JSON {
		if text, err = tell(answer); err != nil {
			return err
		}
	}
	return r.Print(cmd, answer.Object, text)
}

// Print prints an answer: its object, or the text for people.
func (r *Reply) Print(cmd *cobra.Command, object json.RawMessage, text string) error {
	if r.JSON {
		text = string(object)
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), text)
	if err != nil && r.Lost != "" {
		return exit.Hint(err, "%s", r.Lost)
	}
	return err
}

// Refused returns the error of a command. With --json it prints a refusal on stdout instead,
// for programs that read JSON there. It returns the error if that cannot be printed.
func (r *Reply) Refused(cmd *cobra.Command, err error) error {
	var (
		refusal *client.Refusal
		refused *server.HelloError
	)
	switch {
	case !r.JSON:
		return err
	case errors.As(err, &refusal):
		if _, failed := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", refusal.Object); failed != nil {
			return err
		}
		return exit.Reported(err)
	case errors.As(err, &refused):
		if failed := json.NewEncoder(cmd.OutOrStdout()).Encode(refused); failed != nil {
			return err
		}
		return exit.ErrReported
	default:
		return err
	}
}
