// Package view has the commands that show the daemon's state, such as leases, tree and
// queue, and those that change what these show, such as revoke. The former print a table
// or JSON, once or after every change. The package also has the completions that ask the
// daemon.
package view

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
	"github.com/leasehold/leasehold/dispatch/client"
	"github.com/leasehold/leasehold/dispatch/server/wire"
)

// A look is a call of an operator's tool that reads, and how its answer is drawn.
type look struct {
	title string // of the screen
	tool  string
	empty string // the answer if there is nothing
	args  map[string]any
	draw  drawing
	paged bool // an answer may have only the first page of its lists

	connection.Reply
	watch   bool
	implied bool // nobody named the run
}

// flags adds the flags that all looks have.
func (l *look) flags(cmd *cobra.Command) *cobra.Command {
	l.Flag(cmd, "print JSON, one object per line")
	cmd.Flags().BoolVar(&l.watch, "watch", false, "show it again whenever it changes, until Ctrl-C")
	return place.WithServer(cmd)
}

func (l *look) run(cmd *cobra.Command) error {
	out := cmd.OutOrStdout()
	l.implied = unnamedRun(cmd)
	if l.watch {
		terminal.EndUnread(out)
		ctx, stop := terminal.UntilHangup(cmd.Context()) // so that Follow restores the terminal
		defer stop()
		cmd.SetContext(ctx)
	}
	return l.Refused(cmd, show(cmd, l.watch, func() error { return l.showEmpty(out) }, func(c *client.Client) error {
		if l.watch {
			return l.Follow(cmd.Context(), c, out, true)
		}
		return l.once(cmd, c, out)
	}))
}

// show runs read with a connection of the operator, or empty if no daemon runs. A watch
// goes on with the next daemon.
func show(cmd *cobra.Command, watch bool, empty func() error, read func(*client.Client) error) error {
	c, err := connection.Operator(cmd, false)
	if connection.NoneRuns(err) {
		fmt.Fprintf(cmd.ErrOrStderr(), "leasehold: %v; there is nothing to show\n", err)
		if err := empty(); err != nil || !watch {
			return err
		}
		c, err = awaitDaemon(cmd)
	} else if watch && errors.Is(err, connection.ErrNoDaemon) {
		c, err = comeBack(cmd)
	}
	for err == nil {
		err = read(c)
		c.Close()
		if !watch || !connection.BrokeOff(err) {
			break
		}
		c, err = comeBack(cmd)
	}
	return err
}

// showEmpty shows the answer if there is nothing, as without a daemon.
func (l *look) showEmpty(out io.Writer) error {
	text, err := l.text(state{Answer: client.Answer{Object: json.RawMessage(l.empty)}}, 0, terminal.PaintFor(out))
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, text)
	return err
}

// comeBack connects again after a connection was lost, as when the daemon restarts.
func comeBack(cmd *cobra.Command) (*client.Client, error) {
	fmt.Fprintln(cmd.ErrOrStderr(), "leasehold: the daemon does not answer; this goes on once it does")
	return awaitDaemon(cmd)
}

// awaitDaemon waits until a daemon runs, and connects to it.
func awaitDaemon(cmd *cobra.Command) (*client.Client, error) {
	for {
		if connection.Pause(cmd.Context(), daemonPoll) != nil {
			return nil, exit.Code(exit.OK) // Ctrl-C ends a watch normally
		}
		c, err := connection.Operator(cmd, false)
		if !connection.IsAway(err) {
			return c, err
		}
	}
}

// daemonPoll is the time between two attempts of a watch to find a daemon.
const daemonPoll = 500 * time.Millisecond

// unnamedRun reports whether a command shows the run of this project because nobody
// named another one.
func unnamedRun(cmd *cobra.Command) bool {
	return place.NamedRun("") == "" && !cmd.Flags().Changed("run")
}

// nobodyYet reports whether a call failed because a run does not exist. If nobody named
// the run, this is no error, because the first agent creates it: nobodyYet says so.
func nobodyYet(cmd *cobra.Command, args map[string]any, err error) bool {
	refusal, ok := errors.AsType[*client.Refusal](err)
	run, _ := args["run"].(string)
	if !ok || !unnamedRun(cmd) || refusal.Code != "NOT_FOUND" || !strings.HasPrefix(refusal.Text, fmt.Sprintf("no run %q", run)) {
		return false
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "leasehold: nobody has joined run %s of this project yet; leasehold runs shows the runs there are\n", run)
	return true
}

func (l *look) once(cmd *cobra.Command, c *client.Client, out io.Writer) error {
	answer, err := connection.Call(cmd.Context(), c, l.tool, l.args)
	if nobodyYet(cmd, l.args, err) {
		return l.showEmpty(out)
	}
	if err == nil && l.paged {
		answer.Object, err = l.allPages(cmd.Context(), c, answer.Object)
	}
	if err != nil {
		return err
	}
	if l.implied && !l.JSON && l.nothing(answer.Object) {
		defer l.noteOtherRuns(cmd, c)
	}
	if list := missing(answer.Object); list != "" && !l.JSON {
		defer fmt.Fprintf(cmd.ErrOrStderr(), "leasehold: no server leads %s at present, and its runs are not shown; try again\n", list)
	}
	text, err := l.text(state{Answer: answer}, 0, terminal.PaintFor(out))
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, text)
	return err
}

// allPages asks for the pages after the first, and returns an object with the lists of all
// pages. A list may have 100 000 elements, so none of them is decoded here.
func (l *look) allPages(ctx context.Context, c *client.Client, first json.RawMessage) (json.RawMessage, error) {
	var names []string               // of the lists
	lists := make(map[string][]byte) // the elements, each page's after a comma
	args := maps.Clone(l.args)
	for page := first; ; {
		var next string
		for name, value := range wire.Members(page) {
			list := string(name)
			if list == "next" {
				next, _ = wire.TextOf(value)
			}
			items, ok := bytes.CutPrefix(value, []byte("["))
			if !ok {
				continue
			}
			if !slices.Contains(names, list) {
				names = append(names, list)
			}
			if items = bytes.TrimSuffix(items, []byte("]")); len(items) > 0 {
				lists[list] = append(append(lists[list], ','), items...)
			}
		}
		if next == "" {
			if args["after"] == nil {
				return first, nil
			}
			var whole []byte
			for _, list := range names {
				whole = fmt.Appendf(whole, ",%q:[%s]", list, bytes.TrimPrefix(lists[list], []byte(",")))
			}
			return fmt.Appendf(nil, "{%s}", bytes.TrimPrefix(whole, []byte(","))), nil
		}
		args["after"] = next
		answer, err := connection.Call(ctx, c, l.tool, args)
		if err != nil {
			return nil, err
		}
		page = answer.Object
	}
}

// missing names the partitions that an answer leaves out. It returns "" if there
// are none.
func missing(object json.RawMessage) string {
	var names []string
	for name, value := range wire.Members(object) {
		if string(name) == "missing" {
			for partition := range wire.Elements(value) {
				names = append(names, fmt.Sprint("partition ", string(partition)))
			}
		}
	}
	return strings.Join(names, ", ")
}

// nothing reports whether an answer lists nothing.
func (l *look) nothing(object json.RawMessage) bool {
	for _, field := range wire.Members(object) {
		if string(field) == "[]" {
			return true
		}
	}
	return false
}

// noteOtherRuns names the other live runs, because the user may have meant one of them.
func (l *look) noteOtherRuns(cmd *cobra.Command, c *client.Client) {
	answer, err := connection.Call(cmd.Context(), c, "operator_tree", map[string]any{"actors": false, "ended": false})
	if err != nil {
		return
	}
	list, _ := connection.Decode[struct{ Runs []ShownRun }](answer.Object)
	seen, ok := l.args["run"].(string)
	if !ok {
		return // the look showed all runs
	}
	var names []string
	for _, r := range list.Runs {
		if r.Run != seen {
			names = append(names, r.Run)
		}
	}
	if len(names) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "leasehold: this is run %s; --run shows another: %s\n", seen, terminal.Some(names))
	}
}

// text returns a state as shown. since is the time since the state was read.
func (l *look) text(seen state, since time.Duration, p terminal.Paint) (string, error) {
	switch {
	case l.JSON:
		return string(seen.Object) + "\n", nil
	case seen.missing:
		return terminal.Printable(seen.Line()) + "\n", nil
	default:
		return l.draw(seen.Object, since, p)
	}
}
