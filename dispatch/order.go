package dispatch

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

// Bounds of an order.
const (
	MaxPrompt    = 256 << 10 // bytes
	MaxEnv       = 32 << 10  // bytes of all names and values
	MaxDirectory = 4096      // bytes
	MaxTools     = 64
	MaxTimeout   = 30 * 24 * time.Hour
	MaxBudget    = Money(1e12) // a million dollars
)

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// ownEnv is what the names of the environment start with that launching sets.
const ownEnv = "LEASEHOLD_"

// check refuses what cannot be handed to a process. agents are those that the
// run knows.
func (o Order) check(agents []string) error {
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
	case o.Timeout < 0 || o.Timeout > MaxTimeout:
		return wrong("timeout_secs", "must be from 0 to %d", MaxTimeout/time.Second)
	case o.Budget < 0 || o.Budget > MaxBudget:
		return wrong("budget_usd", "must be from 0 to %.0f", MaxBudget.USD())
	case len(o.Tools) > MaxTools:
		return wrong("tools", "must be at most %d", MaxTools)
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

// sum tells the same order from another one, whatever its name.
func (o Order) sum() []byte {
	o.Name = ""
	b, err := json.Marshal(o) // maps in the order of their keys
	if err != nil {
		panic(fmt.Sprintf("dispatch: an order: %v", err)) // plain data
	}
	sum := sha256.Sum256(b)
	return sum[:]
}

// orderFor fills what a lead left open in a spawn from what the manifest says
// for the role, and from the lead itself.
func orderFor(s Settings, lead Work, sp Spawn) Order {
	agent, model, timeout := s.WorkerAgent, s.WorkerModel, s.WorkerTimeout
	budget, worktree := s.WorkerBudget, s.WorkerWorktree
	if sp.Role == Sublead {
		agent, model, timeout = s.SubleadAgent, s.SubleadModel, s.SubleadTimeout
		budget, worktree = s.SubleadBudget, false
	}
	if agent == "" {
		agent = lead.Agent
		model = cmp.Or(model, lead.Model)
	}
	if sp.Agent != "" && sp.Agent != agent {
		agent, model = sp.Agent, "" // a model is one of its agent's
	}
	o := Order{
		Name: sp.Name, Agent: agent, Model: cmp.Or(sp.Model, model), Prompt: sp.Prompt, Directory: sp.Directory,
		Env: sp.Env, Timeout: cmp.Or(sp.Timeout, timeout), Worktree: worktree, Tools: sp.Tools, Budget: budget,
	}
	if sp.Worktree != nil {
		o.Worktree = *sp.Worktree
	}
	if sp.Budget != nil {
		o.Budget = *sp.Budget
	}
	switch {
	case o.Directory == "":
		o.Directory = lead.Directory
	case !path.IsAbs(o.Directory) && lead.Directory != "":
		o.Directory = path.Join(lead.Directory, o.Directory)
	}
	return o
}
