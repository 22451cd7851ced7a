package layer

import (
	"strings"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/registry"
)

// self stands for the caller's own name below /peer/.
const self = "self"

// MaxName is how many bytes a member's name can have.
const MaxName = 64

// CheckName refuses, with a [registry.ArgumentError], what cannot be the name
// of a member: it must be one segment of a path, and neither be taken for an
// id, nor for "self", nor for a path of actors.
func CheckName(name string) error {
	problem := ""
	switch _, err := kvstore.ParsePath("/" + kvstore.Peer + "/" + name + "/x"); {
	case name == "" || len(name) > MaxName:
		problem = "must be from 1 to 64 bytes"
	case err != nil || strings.ContainsAny(name, "/→"):
		problem = `must be printable, without spaces around it and without any of / → * ? [ ] { } \`
	case name == self:
		problem = `must not be "self", which is everybody's name for itself`
	case isID(name):
		problem = "must not look like an id"
	default:
		return nil
	}
	return &registry.ArgumentError{Argument: "name", Problem: problem}
}

// path reads what the caller wrote, and gives the one path that it means.
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

// glob reads what the caller wrote. One that spells out whose entries it wants
// is refused if the caller may not read them; what else it matches that the
// caller may not read is for the listing to hide.
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

// peer gives the name of the member that segment stands for below /peer/. An
// id that the caller has no business with is left as it is: the table refuses
// it, like any name that is not the caller's.
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
	case !m.Lead && !m.ReadOnly || m.ID == uuid.Nil:
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
