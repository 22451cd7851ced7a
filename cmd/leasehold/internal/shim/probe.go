package shim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/leasehold/leasehold/cmd/leasehold/internal/connection"
	"github.com/leasehold/leasehold/cmd/leasehold/internal/exit"
	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/server"
)

// A Probe says where a shim would connect.
type Probe struct {
	Socket string `json:"socket"`
	Run    string `json:"run"`
	Path   string `json:"path,omitempty"` // of the actor whose token it has; "": it joins Run
}

// String describes the probe.
func (p Probe) String() string {
	if p.Path != "" {
		return fmt.Sprintf("connects as %s of run %s", p.Path, p.Run)
	}
	return "joins run " + p.Run
}

// probe connects once and prints where. It starts no daemon and creates no
// session of an actor, so it looks itself at what the daemon would refuse of one.
func probe(ctx context.Context, cfg Config, out io.Writer) error {
	if cfg.Token == "" {
		if err := dispatch.CheckRun(cfg.Run); err != nil {
			return exit.Usagef("--run %q: %w", cfg.Run, err)
		}
	}
	if cfg.Token == "" && cfg.Name != "" {
		if err := dispatch.CheckName(cfg.Name); err != nil {
			return exit.Usagef("--name %q: %w", cfg.Name, err)
		}
	}
	d := connection.NewDialer(cfg.Target)
	hello := server.Hello{Token: cfg.Token, Operator: cfg.Token == ""}
	c, err := d.Open(ctx, hello, false)
	if err != nil {
		return err
	}
	defer c.Close()
	p := Probe{Socket: d.Socket, Run: cfg.Run}
	if cfg.Token != "" {
		p.Run, p.Path = c.Actor.Run, c.Actor.Path
	}
	return json.NewEncoder(out).Encode(p)
}
