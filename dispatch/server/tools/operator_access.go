package tools

import (
	"context"
	"fmt"

	"github.com/leasehold/leasehold/dispatch"
)

// Readers returns the tools of Operators that change nothing.
func Readers(state *dispatch.State) (list []Tool) {
	for _, t := range Operators(state) {
		if t.Effect.ReadOnly {
			list = append(list, t)
		}
	}
	return list
}

func (o *operator) accessTools() []Tool {
	return []Tool{
		tool("operator_token_issue", "Issue a token", "Issue a token for a program that is not part of a tree: an operator's, or a reader's, which changes nothing. It is shown only once.", Effect{}, o.issueAccess),
		tool("operator_token_list", "See the tokens of operators and readers", "Who has a token, and until when. The tokens themselves are not stored.", Effect{ReadOnly: true, Idempotent: true}, o.listAccesses),
		tool("operator_token_rotate", "Replace a token", "Issue a new token under the same name; the old one is void at once, or, if it is itself what asks, as soon as the new one is used.", Effect{Destructive: true}, o.rotateAccess),
		tool("operator_token_revoke", "Revoke a token", "Make the token of an operator or reader void at once.", Effect{Destructive: true, Idempotent: true}, o.revokeAccess),
	}
}

type accessNameArg struct {
	Name string `json:"name" doc:"of the token, such as grafana" min:"1" max:"64"`
}

type issueAccessArgs struct {
	accessNameArg
	Role string  `json:"role" doc:"an operator may do everything, a reader only look" enum:"operator|reader"`
	TTL  seconds `json:"ttl_secs,omitempty" doc:"until it expires; default: never" min:"1" max:"315360000"`
}

type access struct {
	Name      string `json:"name" told:"line"`
	Role      string `json:"role" told:"line"`
	CreatedAt stamp  `json:"created_at"`
	ExpiresAt stamp  `json:"expires_at,omitempty" jsonschema:"absent: never"`
}

func accessOf(a dispatch.Access) access {
	return access{a.Name, string(a.Role), stampOf(a.CreatedAt), instant(a.ExpiresAt)}
}

func (a access) String() string {
	s := fmt.Sprintf("token %q, role %s", a.Name, a.Role)
	if a.ExpiresAt != "" {
		s += ", until " + string(a.ExpiresAt)
	}
	return s
}

type issuedAccess struct {
	access
	Token string `json:"token" jsonschema:"secret, shown once" told:"never"`
}

func (a issuedAccess) Text() string { return "issued: " + a.String() }

func (o *operator) issueAccess(ctx context.Context, _ *dispatch.Session, a issueAccessArgs) (issuedAccess, error) {
	made, token, err := o.state.IssueAccess(ctx, a.Name, dispatch.Role(a.Role), a.TTL.duration())
	return issuedAccess{accessOf(made), token}, err
}

func (o *operator) rotateAccess(ctx context.Context, se *dispatch.Session, a accessNameArg) (issuedAccess, error) {
	made, token, err := o.state.RotateAccess(ctx, a.Name, se.Actor().ID)
	return issuedAccess{accessOf(made), token}, err
}

type revokedAccess struct {
	Name    string `json:"name" told:"line"`
	Revoked bool   `json:"revoked"`
}

func (a revokedAccess) Text() string { return fmt.Sprintf("token %q is revoked", a.Name) }

func (o *operator) revokeAccess(ctx context.Context, _ *dispatch.Session, a accessNameArg) (revokedAccess, error) {
	gone, err := o.state.RevokeAccess(ctx, a.Name)
	return revokedAccess{gone.Name, true}, err
}

type accessList struct {
	Tokens []access `json:"tokens"`
}

func (l accessList) Text() string { return counted(len(l.Tokens), "token", "tokens", "") }

func (o *operator) listAccesses(ctx context.Context, _ *dispatch.Session, _ struct{}) (accessList, error) {
	all, err := o.state.Accesses(ctx)
	list := accessList{Tokens: []access{}}
	for _, a := range all {
		list.Tokens = append(list.Tokens, accessOf(a))
	}
	return list, err
}
