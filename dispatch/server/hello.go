package server

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/registry"
)

// HelloVersion is the version of the exchange that opens a connection to the
// socket: a line with a [Hello], answered by a line with a [Welcome]. MCP
// follows.
const HelloVersion = 1

// maxHello bounds the line that opens a connection, in bytes.
const maxHello = 16 << 10

// A Hello says who connects. Its fields stand for those of
// [dispatch.Credentials].
type Hello struct {
	Leasehold int    `json:"leasehold"` // HelloVersion
	Handle    string `json:"handle,omitempty"`
	Token     string `json:"token,omitempty"`
	Operator  bool   `json:"operator,omitempty"`
	Run       string `json:"run,omitempty"`
	Name      string `json:"name,omitempty"`

	// Where the session works, for people and for those who wait for it.
	Directory string `json:"directory,omitempty"`
	Parent    bool   `json:"parent,omitempty"` // of the process that connects is the one that works there

	// Tools are the groups of tools that it wants to see, with commas between
	// them; "": all.
	Tools string `json:"tools,omitempty"`
}

// Lasts reports whether whoever says h again is the same party as before: it
// names a session or an actor, and does not join as a new one.
func (h Hello) Lasts() bool { return h.Handle != "" || h.Token != "" }

// A Welcome answers a Hello: a session, or an error after which the connection
// is closed.
type Welcome struct {
	OK      bool          `json:"ok"`
	Version string        `json:"version,omitempty"` // of the daemon
	Handle  string        `json:"handle,omitempty"`  // resumes the session; a secret
	Resumed bool          `json:"resumed,omitempty"`
	Actor   *WelcomeActor `json:"actor,omitempty"`
	Error   *HelloError   `json:"error,omitempty"`
}

// A WelcomeActor is whom the session acts for.
type WelcomeActor struct {
	ID   uuid.UUID     `json:"actor_id"`
	Run  string        `json:"run,omitempty"`
	Name string        `json:"name"`
	Path string        `json:"path"`
	Role dispatch.Role `json:"role"`
}

// A HelloError is why there is no session.
type HelloError struct {
	Code    string `json:"code"` // of the contract
	Message string `json:"message"`
}

func (e *HelloError) Error() string { return e.Message }

// Greet opens a connection to the daemon at the other end of nc, which stays
// the caller's to close. What follows is to be read from the Reader. The error
// is a [*HelloError] if the daemon refused. Deadlines of nc are the caller's.
func Greet(nc net.Conn, h Hello) (*bufio.Reader, Welcome, error) {
	h.Leasehold = HelloVersion
	_, writeErr := nc.Write(wire.Line(h))
	// Who turns a connection away says why, and may be gone before the hello.
	br := bufio.NewReaderSize(nc, 16<<10)
	line, err := readLine(br, maxHello)
	if err != nil {
		return nil, Welcome{}, cmp.Or(writeErr, err)
	}
	var w Welcome
	if err := json.Unmarshal(line, &w); err != nil {
		return nil, Welcome{}, fmt.Errorf("this is no leasehold daemon: %w", err)
	}
	if w.Error != nil {
		return nil, w, w.Error
	}
	if !w.OK || w.Actor == nil {
		return nil, w, fmt.Errorf("this is no leasehold daemon: it said %.100q", line)
	}
	return br, w, nil
}

// welcome reads a hello, opens its session and says so. Reading is bounded by
// ctx through the deadline that ends with it; see ServeConn.
func (s *Server) welcome(ctx context.Context, nc net.Conn, br *bufio.Reader, peer process.Peer) (*dispatch.Session, *share, []string, error) {
	nc.SetDeadline(time.Now().Add(s.opts.HelloTimeout))
	interruptIfOver(ctx, nc)
	se, groups, err := s.session(ctx, br, peer)
	var sh *share
	if err == nil {
		if sh, err = s.shares.take(se.Actor().ID, socketConn); err != nil {
			err = errors.Join(err, se.Close(err))
		}
	}
	if err != nil {
		r := tools.RefusalOf(err)
		nc.Write(wire.Line(Welcome{Error: &HelloError{r.Code, r.Message}}))
		return nil, nil, nil, err
	}
	a := se.Actor()
	_, err = nc.Write(wire.Line(Welcome{
		OK: true, Version: s.opts.Version, Handle: se.Handle(), Resumed: se.Resumed(),
		Actor: &WelcomeActor{ID: a.ID, Run: a.Run, Name: a.Name, Path: a.Path, Role: a.Role},
	}))
	if err != nil {
		sh.giveBack(socketConn)
		return nil, nil, nil, errors.Join(err, se.Close(fmt.Errorf("its connection ended: %w", err)))
	}
	nc.SetDeadline(time.Time{})
	interruptIfOver(ctx, nc)
	s.opts.Log.Info().Stringer("session", se.ID()).Str("actor", a.Path).Str("run", a.Run).
		Int("pid", peer.PID).Bool("resumed", se.Resumed()).Msg("connected")
	return se, sh, groups, nil
}

// interruptIfOver sets the deadline that the end of ctx has set, in case
// another was set over it just now.
func interruptIfOver(ctx context.Context, nc net.Conn) {
	if ctx.Err() != nil {
		nc.SetReadDeadline(time.Unix(1, 0))
	}
}

// session opens the session that the hello asks for, and says which groups of
// tools its client wants to see.
func (s *Server) session(ctx context.Context, br *bufio.Reader, peer process.Peer) (*dispatch.Session, []string, error) {
	line, err := readLine(br, maxHello)
	if err != nil {
		return nil, nil, fmt.Errorf("no hello: %w", err)
	}
	var h Hello
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&h); err != nil {
		return nil, nil, &registry.ArgumentError{Argument: "hello", Problem: "must be one JSON object in one line: " + err.Error()}
	}
	if h.Leasehold != HelloVersion {
		return nil, nil, &registry.ArgumentError{Argument: "leasehold", Problem: fmt.Sprintf(
			"must be %d: the daemon is version %s and the client is not; restart the older of the two", HelloVersion, s.opts.Version)}
	}
	groups, err := tools.ParseGroups(h.Tools)
	if err != nil {
		return nil, nil, err
	}
	se, err := s.state.Connect(ctx, dispatch.Credentials{
		Handle: h.Handle, Token: h.Token, Operator: h.Operator, Run: h.Run, Name: h.Name,
		Origin: h.origin(peer),
	}, peer)
	return se, groups, err
}

// maxDirectory bounds the directory that a session is kept with.
const maxDirectory = 1 << 10

// origin is where the process works that says h, if it says so.
func (h Hello) origin(peer process.Peer) dispatch.Origin {
	if peer.PID == 0 || !filepath.IsAbs(h.Directory) || len(h.Directory) > maxDirectory || !printable(h.Directory) {
		return dispatch.Origin{}
	}
	pid := peer.PID
	if h.Parent {
		pid = process.Find(peer.PID).Parent
	}
	return dispatch.Origin{Directory: h.Directory, PID: pid}
}

// printable reports whether text can be shown as it is.
func printable(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}
