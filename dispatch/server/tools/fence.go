package tools

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/project"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/registry"
)

// fenceArgs are the leases that a write requires.
type fenceArgs struct {
	Require []required `json:"require_leases,omitempty" doc:"only if each of these leases (scope layer or run) still has its token" max:"16"`
	Mode    string     `json:"require_mode,omitempty" doc:"strict: none may be past its deadline" enum:"current|strict" default:"\"current\""`
}

type required struct {
	Scope string `json:"scope" doc:"of the lease" enum:"layer|run"`
	keyOrPath
	Token uint64 `json:"token" doc:"of its grant" min:"1"`
}

// fence returns the condition that is checked in the transaction of the write.
func (a fenceArgs) fence(ctx context.Context, se *dispatch.Session) (f registry.Fence, err error) {
	f.Strict = a.Mode == "strict"
	if f.Strict && len(a.Require) == 0 {
		return f, &registry.ArgumentError{Argument: "require_mode", Problem: "must be left out without require_leases, because nothing is checked then"}
	}
	for i, r := range a.Require {
		key, err := r.in(ctx, se, dispatch.Scope(r.Scope))
		if err != nil {
			return f, of("require_leases", i, len(a.Require), err)
		}
		need, err := se.Requirement(dispatch.Scope(r.Scope), key, r.Token)
		if err != nil {
			return f, of("require_leases", i, len(a.Require), err)
		}
		f.Leases = append(f.Leases, need)
	}
	return f, nil
}

// fenced returns the queues of the session's run, and the condition of a write to them.
func (a fenceArgs) fenced(ctx context.Context, se *dispatch.Session) (tasks dispatch.Tasks, f registry.Fence, err error) {
	if tasks, err = se.Tasks(); err == nil {
		f, err = a.fence(ctx, se)
	}
	return tasks, f, err
}

// A keyOrPath names a lease.
type keyOrPath struct {
	Key  string `json:"key,omitempty" doc:"any printable string" max:"512"`
	Path string `json:"path,omitempty" doc:"instead: a file; DIR/** for all below" max:"4096"`
}

// in returns the lease's key in the registry of a scope. A relative path starts
// at the directory of the session.
func (k keyOrPath) in(ctx context.Context, se *dispatch.Session, scope dispatch.Scope) (string, error) {
	key := k.Key
	switch {
	case (key == "") == (k.Path == ""):
		return "", &registry.ArgumentError{Argument: "key", Problem: "must be given, or path instead, and not both"}
	case k.Path != "":
		if err := project.CheckOne(k.Path); err != nil {
			return "", err
		}
		dir, err := se.Directory(ctx)
		if err != nil {
			return "", err
		}
		if key, err = project.Path(dir, k.Path); err != nil {
			return "", err
		}
	}
	switch scope {
	case dispatch.RunScope:
		return key, nil
	case dispatch.LayerScope:
		name, err := kvstore.LeaseName(key)
		if wrong, ok := errors.AsType[*registry.ArgumentError](err); ok {
			wrong.Argument = "key" // as the caller calls it
		}
		return name, err
	default:
		return "", &registry.ArgumentError{Argument: "scope", Problem: "must be one of layer, run"}
	}
}

// A scoped names a lease of either scope.
type scoped struct {
	Scope string `json:"scope" doc:"of the lease" enum:"layer|run"`
	Key   string `json:"key,omitempty" doc:"its key, or a layer lease's name" max:"512"`
	Path  string `json:"path,omitempty" doc:"instead: a file or directory" max:"4096"`
}

func (s scoped) lease(ctx context.Context, se *dispatch.Session) (dispatch.Scope, string, error) {
	scope := dispatch.Scope(s.Scope)
	key, err := keyOrPath{s.Key, s.Path}.in(ctx, se, scope)
	return scope, key, err
}

// layerOnly refuses the path of a layer's lead for a lease that is of no layer, because
// its sender meant another lease.
func (s scoped) layerOnly(lead string) error {
	if lead != "" && lead != dispatch.RootPath && s.Scope != string(dispatch.LayerScope) {
		return &registry.ArgumentError{Argument: "layer", Problem: "must be left out unless scope is layer"}
	}
	return nil
}

type checkArgs struct {
	scoped
	Token uint64 `json:"token" doc:"that came with a write"`
}

type tokenCheck struct {
	Scope       string  `json:"scope" jsonschema:"layer or run"`
	Key         string  `json:"key"`
	Token       uint64  `json:"token" jsonschema:"the one that was asked about"`
	Current     bool    `json:"current" jsonschema:"nobody has been granted the lease since"`
	Held        bool    `json:"held" jsonschema:"somebody holds it now, before its deadline"`
	HeldKey     string  `json:"held_key,omitempty" jsonschema:"of the grant now, if it is that of a directory above"`
	HeldToken   uint64  `json:"held_token,omitempty" jsonschema:"of the grant now"`
	Holder      *holder `json:"holder,omitempty" jsonschema:"of the grant now"`
	ReservedFor string  `json:"reserved_for,omitempty" jsonschema:"nobody holds it: path of the first in line, for whom it is kept"`
	KeepAlive   bool    `json:"keep_alive" jsonschema:"it is extended for as long as its holder is connected"`
	ExpiresInMS int64   `json:"expires_in_ms,omitempty" jsonschema:"what is left, in milliseconds"`
}

func (c tokenCheck) Text() string {
	var parts []string
	if c.Current {
		parts = append(parts, fmt.Sprintf("token %d of %s lease %q is current", c.Token, c.Scope, c.Key))
	} else {
		parts = append(parts, fmt.Sprintf("token %d of %s lease %q is not current: refuse what comes with it", c.Token, c.Scope, c.Key))
	}
	switch {
	case c.Held && c.HeldKey != "":
		parts = append(parts, fmt.Sprintf("%s holds %q, which covers it, with token %d, %s", c.Holder.who(), c.HeldKey, c.HeldToken, lease{KeepAlive: c.KeepAlive, ExpiresInMS: c.ExpiresInMS}.expires()))
	case c.Held:
		parts = append(parts, fmt.Sprintf("held by %s with token %d, %s", c.Holder.who(), c.HeldToken, lease{KeepAlive: c.KeepAlive, ExpiresInMS: c.ExpiresInMS}.expires()))
	case c.Current:
		parts = append(parts, "past its deadline, and nobody else has taken it")
	case c.ReservedFor != "":
		parts = append(parts, "nobody holds it", reservation{For: c.ReservedFor, ExpiresInMS: c.ExpiresInMS}.String())
	default:
		parts = append(parts, "nobody holds it")
	}
	return strings.Join(parts, "; ")
}

func tokenCheckOf(a checkArgs, key string, s registry.TokenStanding) tokenCheck {
	c := tokenCheck{Scope: a.Scope, Key: key, Token: a.Token, Current: s.Current, Held: s.Held}
	if s.Current || s.Held {
		h := holderOf(s.Lease.Holder)
		c.Holder, c.HeldToken, c.KeepAlive, c.ExpiresInMS = &h, s.Lease.Token, s.Lease.KeepAlive, s.Lease.ExpiresIn.Milliseconds()
		if s.Lease.Key != key {
			c.HeldKey = s.Lease.Key
		}
	} else if s.Reserved != nil {
		r := reservationOf(*s.Reserved)
		c.ReservedFor, c.ExpiresInMS = r.For, r.ExpiresInMS
	}
	return c
}

func checkToken(ctx context.Context, se *dispatch.Session, a checkArgs) (tokenCheck, error) {
	scope, key, err := a.lease(ctx, se)
	if err != nil {
		return tokenCheck{}, err
	}
	s, err := se.CheckToken(ctx, scope, key, a.Token)
	return tokenCheckOf(a, key, s), err
}

type operatorCheckArgs struct {
	runArg
	checkArgs
	Layer string `json:"layer,omitempty" doc:"path of the lead of the layer, with scope layer" default:"\"root\"" max:"512"`
}

func (o *operator) checkToken(ctx context.Context, se *dispatch.Session, a operatorCheckArgs) (tokenCheck, error) {
	if err := a.layerOnly(a.Layer); err != nil {
		return tokenCheck{}, err
	}
	scope, key, err := a.lease(ctx, se)
	if err != nil {
		return tokenCheck{}, err
	}
	s, err := o.state.CheckToken(ctx, a.Run, a.Layer, scope, key, a.Token)
	return tokenCheckOf(a.checkArgs, key, s), err
}
