package layer

import (
	"strings"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/registry"
)

// self is the name that every member can use for itself below /peer/.
const self = "self"

// MaxName is the greatest length of a member's name in bytes.
const MaxName = 64

// CheckName returns a [registry.ArgumentError] if name cannot be the name of a
// member. It must be one segment of a path, and must not look like an id, like
// "self" or like the path of an actor.
func CheckName(name string) error {
	problem := ""
	switch _, err := kvstore.ParsePath("/" + kvstore.Peer + "/" + name + "/x"); {
	case name == "" || len(name) > MaxName:
		problem = "must be from 1 to 64 bytes"
	case err != nil || strings.ContainsAny(name, "/→") || strings.Contains(name, "->"):
		problem = `must be printable, without spaces around it and without any of -> / → * ? [ ] { } \`
	case name == self:
		problem = `must not be "self", which is everybody's name for itself`
	case isID(name):
		problem = "must not look like an id"
	default:
		return nil
	}
	return &registry.ArgumentError{Argument: "name", Problem: problem}
}

// path parses the caller's path and resolves the peer in it.
func (v *View) path(tx engine.Tx, s string) (kvstore.Path, error) {
	p, err := kvstore.ParsePath(s)
	if err != nil || p.Root() != kvstore.Peer {
		return p, err
	}
	name, err := v.peer(tx, "path", p.Peer())
	if err != nil {
		return kvstore.Path{}, err
	}
	return p.WithPeer(name)
}

// glob parses the caller's glob and resolves the peers in it. If it names a
// peer without a wildcard, it is refused if the caller may not read that peer's
// entries. Other entries that the caller may not read are hidden from the
// listing.
func (v *View) glob(tx engine.Tx, s string) (kvstore.Glob, error) {
	g, err := kvstore.ParseGlob(s)
	if err != nil {
		return g, err
	}
	if v.member.ID == uuid.Nil {
		return kvstore.Glob{}, forbidden(v.member, read, "", "", s)
	}
	return g.WithPeers(func(segment string) (string, error) {
		name, err := v.peer(tx, "glob", segment)
		if err == nil && v.member.access(kvstore.Peer, name) < read {
			err = forbidden(v.member, read, kvstore.Peer, name, s)
		}
		return name, err
	})
}

// peer returns the name of the member that segment refers to below /peer/. An
// id that the caller may not resolve is returned unchanged, and the table then
// refuses it like any other name that is not the caller's.
func (v *View) peer(tx engine.Tx, argument, segment string) (name string, err error) {
	m := v.member
	if segment == self {
		if m.ReadOnly {
			return "", &registry.ArgumentError{Argument: argument, Problem: "must name the peer: you are not a member of this layer"}
		}
		return m.Name, nil
	}
	if !isID(segment) {
		return segment, nil
	}
	id := uuid.MustParse(segment)
	if id.String() != segment {
		return "", &registry.ArgumentError{Argument: argument, Problem: "must have the id in its canonical form: " + id.String()}
	}
	switch {
	case m.ID == id && !m.ReadOnly:
		return m.Name, nil
	case !m.Lead && !m.ReadOnly:
		return segment, nil
	}
	name, ok := v.layer.opts.Name(tx, id)
	if !ok {
		return "", &UnknownPeerError{id}
	}
	return name, nil
}

func isID(segment string) bool {
	_, err := uuid.Parse(segment)
	return err == nil
}
