package view

import (
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/place"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/terminal"
)

// NewTokenCommand issues tokens for programs that are in no tree.
func NewTokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Issue tokens of operators and readers, for the HTTP API",
		Long: `Issue tokens for programs that use the HTTP API and are not part of a tree. An
operator's token allows all that your own commands can do; a reader's is read-only.
An actor's token comes from leasehold actor.`,
		Example: `  leasehold token issue grafana --role reader
  leasehold token list
  leasehold token rotate grafana
  leasehold token revoke grafana`,
	}
	cmd.AddCommand(newTokenIssueCommand(), newTokenListCommand(), newTokenRotateCommand(), newTokenRevokeCommand())
	return cmd
}

func newTokenIssueCommand() *cobra.Command {
	var role string
	cmd := tokenCommand("operator_token_issue", connection.IssuedToken, "the token was issued and not shown: leasehold token rotate issues another under its name", func(cmd *cobra.Command, args map[string]any) error {
		args["role"] = role
		return Expires(cmd, args, "ttl_secs")
	})
	cmd.Use, cmd.Short = "issue NAME", "Issue a token, and print it"
	cmd.Long = `Issue a token and print it. It is a secret and is shown only once: keep it in a file
that only its program reads. token list, rotate and revoke know the token by NAME.`
	cmd.Example = `  leasehold token issue grafana --role reader
  leasehold token issue deploy --role operator --expires 24h`
	OneOf(cmd, &role, "role", "operator or reader (required)", "operator", "reader")
	cmd.Flags().Duration("expires", 0, "void after this long, from 1s (default never)")
	_ = cmd.MarkFlagRequired("role")
	return cmd
}

func newTokenRotateCommand() *cobra.Command {
	cmd := tokenCommand("operator_token_rotate", connection.IssuedToken, connection.OldIsVoid, nil)
	cmd.Use, cmd.Short = "rotate NAME", "Replace a token, and print the new one; the old one is void"
	cmd.ValidArgsFunction = First(completeTokens)
	cmd.Example = `  leasehold token rotate grafana`
	return cmd
}

func newTokenRevokeCommand() *cobra.Command {
	cmd := tokenCommand("operator_token_revoke", connection.Line, "", nil)
	cmd.Use, cmd.Short = "revoke NAME", "Make a token void"
	cmd.ValidArgsFunction = First(completeTokens)
	cmd.Example = `  leasehold token revoke grafana`
	return cmd
}

func completeTokens(cmd *cobra.Command, _ []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	list := known[struct {
		Tokens []struct{ Name, Role string }
	}](cmd, "operator_token_list", map[string]any{})
	for _, t := range list.Tokens {
		names = append(names, cobra.CompletionWithDesc(t.Name, t.Role))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// tokenCommand calls a tool with the name of a token. lost is what to do if its answer
// cannot be printed.
func tokenCommand(tool string, show connection.Telling, lost string, more func(cmd *cobra.Command, args map[string]any) error) *cobra.Command {
	reply := connection.Reply{Lost: lost}
	cmd := place.WithServer(&cobra.Command{
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, given []string) error {
			args := map[string]any{"name": given[0]}
			if more != nil {
				if err := more(cmd, args); err != nil {
					return err
				}
			}
			return reply.Call(cmd, true, tool, args, show)
		},
	})
	reply.Flag(cmd, "print JSON, one object per line")
	return cmd
}

func newTokenListCommand() *cobra.Command {
	l := &look{title: "tokens", tool: "operator_token_list", empty: `{"tokens":[]}`, args: map[string]any{}, draw: drawTokens}
	return l.flags(&cobra.Command{
		Use:   "list",
		Short: "Show who has a token, and until when",
		Long: `Show who has a token of an operator or reader, and until when. The tokens themselves
are not stored.`,
		Example: `  leasehold token list`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return l.run(cmd) },
	})
}

func drawTokens(object json.RawMessage, _ time.Duration, p terminal.Paint) (string, error) {
	list, err := connection.Decode[struct {
		Tokens []struct {
			Name      string
			Role      string
			CreatedAt time.Time  `json:"created_at"`
			ExpiresAt *time.Time `json:"expires_at"`
		}
	}](object)
	if err != nil {
		return "", err
	}
	if len(list.Tokens) == 0 {
		return "no tokens\n", nil
	}
	t := terminal.Table{Columns: []terminal.Column{
		{Head: "NAME", Want: 24, Bare: 10},
		{Head: "ROLE"},
		{Head: "AGE", Rank: terminal.Minor},
		{Head: "EXPIRES"},
	}}
	for _, token := range list.Tokens {
		expires := "never"
		if token.ExpiresAt != nil {
			expires = "in " + terminal.Brief(time.Until(*token.ExpiresAt))
		}
		t.Rows = append(t.Rows, terminal.TextRow(token.Name, token.Role, terminal.Brief(time.Since(token.CreatedAt)), expires))
	}
	return t.Render(p), nil
}
