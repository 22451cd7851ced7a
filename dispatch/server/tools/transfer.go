package tools

import (
	"context"
	"fmt"

	"github.com/leasehold/leasehold/dispatch"
)

type transferArgs struct {
	leaseIDArg
	To string `json:"to" doc:"path of the actor; empty takes the offer back" max:"512"`
}

type transferred struct {
	OfferedTo string `json:"offered_to" jsonschema:"path of the actor; empty: nobody"`
	Accepted  bool   `json:"accepted" jsonschema:"it waited for the lease, and has it now"`
}

func (t transferred) Text() string {
	switch {
	case t.Accepted:
		return fmt.Sprintf("%s waited for it and holds it now; it is no longer yours", t.OfferedTo)
	case t.OfferedTo == "":
		return "the lease is offered to nobody; it is yours"
	default:
		return fmt.Sprintf("offered to %s, which is told in its next answer and accepts by acquiring it; it is yours until then", t.OfferedTo)
	}
}

func transfer(ctx context.Context, se *dispatch.Session, a transferArgs) (transferred, error) {
	id, err := a.id()
	if err != nil {
		return transferred{}, err
	}
	accepted, err := se.Transfer(ctx, id, a.To)
	return transferred{dispatch.PathOf(a.To), accepted}, err
}
