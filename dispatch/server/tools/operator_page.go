package tools

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold/leasehold/dispatch"
)

// A PageCode is a one-time code with which a browser signs in to the page.
type PageCode struct {
	Code string
	For  time.Duration // how long it is valid
	URL  string        // of a port that serves the page, if one was requested
}

// Page returns the tool with which the operator opens the page.
func Page(open func(ctx context.Context, role dispatch.Role, port, own bool) (PageCode, error)) []Tool {
	return []Tool{
		tool("operator_page_open", "Let a browser in", "Make a one-time code by which a browser signs in to the page, and open a port on the loopback for it if none serves HTTP.", Effect{},
			func(ctx context.Context, _ *dispatch.Session, a openPageArgs) (openedPage, error) {
				made, err := open(ctx, dispatch.Role(a.Role), a.Port, a.Own)
				return openedPage{made.Code, made.For.Milliseconds(), a.Role, made.URL}, err
			}),
	}
}

type openPageArgs struct {
	Role string `json:"role,omitempty" doc:"an operator may do everything, a reader only look" enum:"operator|reader" default:"\"operator\""`
	Port bool   `json:"port,omitempty" doc:"serve the page at a port of the loopback, too" default:"false"`
	Own  bool   `json:"own,omitempty" doc:"let only browsers of the daemon's user sign in, if they run on its machine, because other users there may see the code" default:"false"`
}

type openedPage struct {
	Code        string `json:"one_time_code" jsonschema:"secret, told once, good once" told:"never"`
	ExpiresInMS int64  `json:"expires_in_ms"`
	Role        string `json:"role" told:"line"`
	URL         string `json:"url,omitempty" jsonschema:"of the port that was asked for"`
}

func (p openedPage) Text() string { return fmt.Sprintf("a browser may sign in as %s once", p.Role) }
