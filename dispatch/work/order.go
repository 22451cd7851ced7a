package work

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/leasehold/leasehold/registry"
)

// Limits of an order.
const (
	MaxPrompt    = 256 << 10 // bytes
	MaxEnv       = 32 << 10  // bytes of all names and values
	MaxDirectory = 4096      // bytes
	MaxTools     = 64
	MaxTimeout   = 30 * 24 * time.Hour
	MaxBudget    = Money(1e12) // a million dollars
)

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// ownEnv is the prefix of the environment variables that launching sets.
const ownEnv = "LEASEHOLD_"

// An Order is what a launched actor has to do, and with which agent and
// resources.
type Order struct {
	Name        string            `json:"name"`
	Agent       string            `json:"agent"`
	Model       string            `json:"model,omitempty"`
	Prompt      string            `json:"prompt"`
	Directory   string            `json:"directory,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	TimeoutSecs float64           `json:"timeout_secs,omitempty"`
	Worktree    bool              `json:"worktree,omitempty"`
	Tools       []string          `json:"tools,omitempty"`
	BudgetUSD   float64           `json:"budget_usd,omitempty"`
	Placement
}

// A Placement says on which machine a process runs. The zero Placement is the
// dispatcher's machine.
type Placement struct {
	Machine string `json:"machine,omitempty" toml:"machine" doc:"run it there, where leasehold launcher has that name; *: on any; default: where the run is dispatched"`
	Label   string `json:"label,omitempty" toml:"label" doc:"run it on a machine whose launcher has this label, in place of machine"`
}

// AnyMachine is a Machine that leaves the choice to the daemon. The dispatcher's machine
// is among the candidates.
const AnyMachine = "*"

// Elsewhere reports whether the placement asks for a machine other than the dispatcher's.
func (p Placement) Elsewhere() bool {
	return p.Label != "" || p.Machine != "" && p.Machine != AnyMachine
}

func (p Placement) String() string {
	switch {
	case p.Label != "":
		return fmt.Sprintf("a machine with label %q", p.Label)
	case p.Machine == AnyMachine:
		return "any machine"
	default:
		return fmt.Sprintf("machine %q", p.Machine)
	}
}

// CheckMachine returns a [registry.ArgumentError] if name is not a valid name of a
// machine or a valid label.
func CheckMachine(argument, name string) error {
	if len(name) <= maxMachine && machineName.MatchString(name) {
		return nil
	}
	return &registry.ArgumentError{Argument: argument, Problem: fmt.Sprintf("must be from 1 to %d of a-z A-Z 0-9 . _ -, and begin with a letter or digit", maxMachine)}
}

const maxMachine = 64

var machineName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// Check returns a [registry.ArgumentError] if the placement has both a machine and a
// label, or an invalid name. The zero Placement is valid.
func (p Placement) Check() error {
	switch {
	case p.Machine != "" && p.Label != "":
		return &registry.ArgumentError{Argument: "label", Problem: "must be left out beside machine: one of them says where"}
	case p.Machine != "" && p.Machine != AnyMachine:
		return CheckMachine("machine", p.Machine)
	case p.Label != "":
		return CheckMachine("label", p.Label)
	}
	return nil
}

// Check returns a [registry.ArgumentError] if the order cannot be given to a
// process. agents are the agents of the run.
func (o Order) Check(agents []string) error {
	wrong := func(argument, format string, args ...any) error {
		return &registry.ArgumentError{Argument: argument, Problem: fmt.Sprintf(format, args...)}
	}
	switch {
	case o.Agent == "":
		return wrong("agent", "must be given: the manifest names none for this role; it has %s", strings.Join(agents, ", "))
	case !slices.Contains(agents, o.Agent):
		return wrong("agent", "must be one that the manifest names: %s", strings.Join(agents, ", "))
	case o.Prompt == "" || len(o.Prompt) > MaxPrompt || strings.ContainsRune(o.Prompt, 0):
		return wrong("prompt", "must be from 1 to %d bytes, none of them zero; put what is longer in a file or in the store", MaxPrompt)
	case len(o.Model) > 128 || strings.ContainsFunc(o.Model, unprintable):
		return wrong("model", "must be at most 128 printable bytes")
	case len(o.Directory) > MaxDirectory || strings.ContainsRune(o.Directory, 0):
		return wrong("directory", "must be at most %d bytes", MaxDirectory)
	case o.TimeoutSecs < 0 || o.TimeoutSecs > MaxTimeout.Seconds():
		return wrong("timeout_secs", "must be from 0 to %.0f", MaxTimeout.Seconds())
	case o.BudgetUSD < 0 || o.BudgetUSD > MaxBudget.USD():
		return wrong("budget_usd", "must be from 0 to %.0f", MaxBudget.USD())
	case len(o.Tools) > MaxTools:
		return wrong("tools", "must be at most %d", MaxTools)
	}
	if err := o.Placement.Check(); err != nil {
		return err
	}
	for _, tool := range o.Tools {
		if tool == "" || len(tool) > 128 || strings.ContainsFunc(tool, unprintable) {
			return wrong("tools", "must each be from 1 to 128 printable bytes")
		}
	}
	size := 0
	for name, value := range o.Env {
		size += len(name) + len(value)
		switch {
		case !envName.MatchString(name):
			return wrong("env", "must have names of A-Z a-z 0-9 _, not %.40q", name)
		case strings.HasPrefix(name, ownEnv):
			return wrong("env", "must not set %s: %s* is what launching sets", name, ownEnv)
		case strings.ContainsRune(value, 0):
			return wrong("env", "must have no zero byte in %s", name)
		}
	}
	if size > MaxEnv {
		return wrong("env", "must be at most %d bytes in all", MaxEnv)
	}
	return nil
}

func unprintable(r rune) bool { return r < ' ' || r == 0x7f }

// Sum returns a hash of the order without its name. Equal orders have equal
// sums.
func (o Order) Sum() []byte {
	o.Name = ""
	b, err := json.Marshal(o) // maps are written in the order of their keys
	if err != nil {
		panic(fmt.Sprintf("work: an order: %v", err)) // cannot happen: plain data
	}
	sum := sha256.Sum256(b)
	return sum[:]
}

// A Wish is an order as a lead requests it. Fields may be unset.
type Wish struct {
	Order              // zero fields are unset; use BudgetUSD and Worktree below
	BudgetUSD *float64 // nil: the manifest's default for the role
	Worktree  *bool    // nil: the manifest's default for the role
}

// OrderFor fills in the unset fields from the manifest's settings for the role
// and from the lead's own work.
func (s Settings) OrderFor(lead Work, sublead bool, wish Wish) Order {
	agent, model, timeout := s.Worker.Agent, s.Worker.Model, s.Worker.TimeoutSecs
	budget, worktree, place := s.Worker.BudgetUSD, s.Worker.Worktree, s.Worker.Placement
	if sublead {
		agent, model, timeout = s.Sublead.Agent, s.Sublead.Model, s.Sublead.TimeoutSecs
		budget, worktree, place = s.Sublead.BudgetUSD, false, s.Sublead.Placement
	}
	if agent == "" {
		agent = lead.Agent
		model = cmp.Or(model, lead.Model)
	}
	o := wish.Order
	if o.Agent != "" && o.Agent != agent {
		agent, model = o.Agent, "" // a model belongs to its agent
	}
	if o.Placement == (Placement{}) {
		o.Placement = place
	}
	o.Agent, o.Model, o.TimeoutSecs = agent, cmp.Or(o.Model, model), cmp.Or(o.TimeoutSecs, timeout)
	o.Worktree, o.BudgetUSD = worktree, budget
	if wish.Worktree != nil {
		o.Worktree = *wish.Worktree
	}
	if wish.BudgetUSD != nil {
		o.BudgetUSD = *wish.BudgetUSD
	}
	switch {
	case o.Directory == "":
		o.Directory = lead.Directory
	case !path.IsAbs(o.Directory) && lead.Directory != "":
		o.Directory = path.Join(lead.Directory, o.Directory)
	}
	return o
}
