package tools

import (
	"context"
	"fmt"
	"strings"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/registry"
)

type revokeArgs struct {
	scoped
	Layer  string `json:"layer,omitempty" doc:"name or path of its lead; default: yours" max:"512"`
	Holder string `json:"holder,omitempty" doc:"path of the one who loses it; default: all" max:"512" limits:"true"`
	Reason string `json:"reason" doc:"told to the holder (≤ 256 bytes)" min:"1" max:"256"`
}

func (a revokeArgs) revocation(ctx context.Context, se *dispatch.Session) (dispatch.Revocation, error) {
	if err := a.layerOnly(a.Layer); err != nil {
		return dispatch.Revocation{}, err
	}
	scope, key, err := a.lease(ctx, se)
	return dispatch.Revocation{Scope: scope, Layer: a.Layer, Key: key, Holder: a.Holder, Reason: a.Reason}, err
}

type revoked struct {
	Scope   string   `json:"scope" jsonschema:"layer or run"`
	Key     string   `json:"key"`
	Revoked bool     `json:"revoked" jsonschema:"false: nobody held it, or not the holder that was named"`
	Holder  *holder  `json:"holder,omitempty" jsonschema:"who lost it, the first of several"`
	Holders []holder `json:"holders,omitempty" jsonschema:"of a lease that was shared: the first of those who lost it"`
	Count   int      `json:"count" jsonschema:"how many lost it"`
	Spared  int      `json:"spared,omitempty" jsonschema:"how many share it who are not in your sub-tree, and keep it"`
	Token   uint64   `json:"token,omitempty" jsonschema:"greater than that of any who lost it: a resource that has seen it refuses them"`
	Next    []holder `json:"next,omitempty" jsonschema:"who holds the lease now"`
	Overlap *overlap `json:"overlap,omitempty" jsonschema:"if nobody held it: a lease that is held and overlaps with it"`
}

// An overlap is a lease on another key, such as that of the directory of a file.
type overlap struct {
	Key    string `json:"key"`
	Holder holder `json:"holder"`
}

func revokedOf(v dispatch.Revocation, done registry.Revoked) revoked {
	r := revoked{Scope: string(v.Scope), Key: v.Key, Revoked: done.Count > 0, Count: done.Count, Spared: done.Spared, Token: done.Token}
	for _, h := range done.Holders {
		r.Holders = append(r.Holders, holderOf(h))
	}
	if done.Count > 0 {
		r.Holder = &r.Holders[0]
	}
	if done.Count == 1 {
		r.Holders = nil
	}
	for _, h := range done.Next {
		r.Next = append(r.Next, holderOf(h))
	}
	if l := done.Overlap; l.Key != "" {
		r.Overlap = &overlap{l.Key, holderOf(l.Holder)}
	}
	return r
}

func (r revoked) Text() string {
	what := fmt.Sprintf("%s lease %q", r.Scope, r.Key)
	switch {
	case !r.Revoked && len(r.Next) > 0:
		return fmt.Sprintf("nothing to revoke: the holder that you named does not hold %s; now held by %s", what, severalOf(r.Next, len(r.Next)))
	case !r.Revoked && r.Overlap != nil:
		return fmt.Sprintf("nothing to revoke: nobody holds %s, but %s holds %q, which overlaps with it", what, r.Overlap.Holder.who(), r.Overlap.Key)
	case !r.Revoked:
		return "nothing to revoke: nobody holds " + what
	}
	lost := r.Holders
	if len(lost) == 0 {
		lost = []holder{*r.Holder}
	}
	text := fmt.Sprintf("%s revoked from %s", what, severalOf(lost, r.Count))
	if r.Spared > 0 {
		text += ", but not from " + counted(r.Spared, "party", "parties", "") + " outside your sub-tree"
	}
	if len(r.Next) > 0 {
		text += "; now held by " + severalOf(r.Next, len(r.Next))
	} else {
		text += "; nobody holds it now"
	}
	return text
}

// severalOf lists the first of n parties.
func severalOf(list []holder, n int) string {
	var names []string
	for _, h := range list {
		names = append(names, h.who())
	}
	text := strings.Join(names, ", ")
	if more := n - len(list); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func revokeLease(ctx context.Context, se *dispatch.Session, a revokeArgs) (revoked, error) {
	v, err := a.revocation(ctx, se)
	if err != nil {
		return revoked{}, err
	}
	done, err := se.Revoke(ctx, v)
	return revokedOf(v, done), err
}

type operatorRevokeArgs struct {
	runArg
	revokeArgs
}

func (o *operator) revokeLease(ctx context.Context, se *dispatch.Session, a operatorRevokeArgs) (revoked, error) {
	v, err := a.revocation(ctx, se)
	if err != nil {
		return revoked{}, err
	}
	done, err := o.state.Revoke(ctx, a.Run, v)
	return revokedOf(v, done), err
}
