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
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/server/fair"
	"github.com/leasehold/leasehold/dispatch/server/tools"
	"github.com/leasehold/leasehold/dispatch/server/wire"
	"github.com/leasehold/leasehold/registry"
)

// HelloVersion is the version of the exchange that opens a connection to the
// socket: the client sends a line with a [Hello], and the daemon answers with a
// line with a [Welcome]. MCP follows.
//
// Clients survive an upgrade, and so may the daemon, so either may be newer. A
// daemon accepts hellos of its own version and of all earlier ones. It refuses
// a later one, because it would ignore fields that it does not know about the
// client. So a change that adds a field to Hello, or changes the meaning of
// one, must raise the version. A client says the earliest version that has all
// that it says about itself, so a daemon refuses only what it would ignore.
const HelloVersion = 2

// maxHello is the largest length of the line that opens a connection, in bytes.
const maxHello = 16 << 10

// A Hello says who connects. Its fields are those of [dispatch.Credentials].
type Hello struct {
	Leasehold int    `json:"leasehold"` // at most HelloVersion
	Handle    string `json:"handle,omitempty"`
	Token     string `json:"token,omitempty"`
	Operator  bool   `json:"operator,omitempty"`
	Run       string `json:"run,omitempty"`
	Name      string `json:"name,omitempty"`

	// Where the session works, as information for people and for those who wait
	// for it.
	Directory string `json:"directory,omitempty"`
	Parent    bool   `json:"parent,omitempty"` // the parent of the connecting process works there
	Mark      string `json:"mark,omitempty"`   // names the process that works there to a daemon that does not know its pid; see [process.Mark]; since version 2

	// Tools are the groups of tools that the client wants to see, separated by
	// commas; "" means all.
	Tools string `json:"tools,omitempty"`
}

// Lasts reports whether a client that sends h again is the same party as
// before: h names a session or an actor, and does not join as a new one.
func (h Hello) Lasts() bool { return h.Handle != "" || h.Token != "" }

// version returns the earliest version that has all that h says, so that a daemon of
// that version accepts h.
func (h Hello) version() int {
	if h.Mark != "" {
		return 2
	}
	return 1
}

// A Welcome answers a Hello: a session, or an error after which the connection
// is closed.
type Welcome struct {
	OK      bool          `json:"ok"`
	Version string        `json:"version,omitempty"` // of the daemon
	Handle  string        `json:"handle,omitempty"`  // secret; resumes the session
	Resumed bool          `json:"resumed,omitempty"`
	Actor   *WelcomeActor `json:"actor,omitempty"`
	Error   *HelloError   `json:"error,omitempty"`
}

// A WelcomeActor is the actor of the session.
type WelcomeActor struct {
	ID   uuid.UUID     `json:"actor_id"`
	Run  string        `json:"run,omitempty"`
	Name string        `json:"name"`
	Path string        `json:"path"`
	Role dispatch.Role `json:"role"`
}

// A HelloError says why no session was opened.
type HelloError struct {
	Code    string `json:"code"` // one of the contract's
	Message string `json:"message"`
	Next    string `json:"next,omitempty"` // the end of the message, if it says what to do next

	Which    string `json:"which,omitempty"`    // limit
	Max      int64  `json:"max,omitempty"`      // of it
	Argument string `json:"argument,omitempty"` // that is invalid
}

func (e *HelloError) Error() string { return e.Message }

// Refusal returns the refusal of a call for which a session was to be opened.
func (e *HelloError) Refusal() tools.Refusal {
	r := tools.Refusal{Code: e.Code, Message: e.Message, Next: e.Next, Data: map[string]any{}}
	if e.Which != "" {
		r.Data["which"], r.Data["max"] = e.Which, e.Max
	}
	if e.Argument != "" {
		r.Data["argument"] = e.Argument
	}
	return r
}

// Greet opens a connection to the daemon over nc, which the caller must close.
// What follows must be read from the Reader. If the daemon refused, the error
// is a [*HelloError], and also if h has a name that is not UTF-8. Greet sets no deadlines
// on nc.
func Greet(nc net.Conn, h Hello) (*bufio.Reader, Welcome, error) {
	h.Leasehold = h.version()
	h.Directory = wire.Informative(h.Directory)
	hello, err := wire.Marshal(h)
	if err != nil {
		return nil, Welcome{}, &HelloError{Code: "INVALID_ARGUMENT", Message: err.Error()}
	}
	_, writeErr := nc.Write(append(hello, '\n'))
	// A daemon that refuses the connection says why, and may close it before it
	// reads the hello.
	br := bufio.NewReaderSize(nc, 16<<10)
	line, err := readLine(br, maxHello, nil)
	if err != nil {
		return nil, Welcome{}, cmp.Or(writeErr, err)
	}
	var w Welcome
	if err := json.Unmarshal(line, &w); err != nil {
		return nil, Welcome{}, fmt.Errorf("this is not a leasehold daemon: %w", err)
	}
	if w.Error != nil {
		return nil, w, w.Error
	}
	if !w.OK || w.Actor == nil {
		return nil, w, fmt.Errorf("this is not a leasehold daemon: it said %.100q", line)
	}
	return br, w, nil
}

// welcome reads a hello, opens its session and answers. The end of ctx
// interrupts reading, through the deadline that it sets; see ServeConn.
//
// If another server leads the client's partition, the client is passed on to
// it, until it leaves. Then there is neither a visit nor an error.
//
// While the database is away, opening a session takes longer than clients wait. So the
// client is told the reason first, and a session that opens after that is dismissed.
func (s *Server) welcome(ctx context.Context, nc net.Conn, br *bufio.Reader, peer process.Peer) (v visit, err error) {
	nc.SetDeadline(time.Now().Add(s.opts.HelloTimeout))
	interruptIfOver(ctx, nc)
	g, err := s.readHello(nc, br, peer)
	// first lets only one answer the client: this function, the time limit, or the server
	// to which the client is passed on.
	var first sync.Once
	answer := func(w Welcome) error {
		err := errLate
		first.Do(func() {
			nc.SetDeadline(time.Now().Add(s.opts.HelloTimeout)) // to write
			interruptIfOver(ctx, nc)
			_, err = nc.Write(wire.Line(w))
		})
		return err
	}
	opening, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	timeout := homeTimeout
	if c, ok := nc.(*passed); ok {
		timeout -= c.waited
	}
	late := time.AfterFunc(timeout, func() {
		if s.why("") != "" {
			_ = answer(refusal(s.noHome()))
			giveUp(errLate)
		}
	})
	defer late.Stop()
	if err == nil {
		var passedOn bool
		if passedOn, err = s.seat(ctx, opening, &v, g, &first); passedOn {
			return visit{}, err
		}
	}
	if err != nil {
		_ = answer(refusal(err))
		if v.se != nil {
			err = errors.Join(err, s.dismiss(ctx, v, nc, err))
			v.home.guests.Done()
		}
		return visit{}, err
	}
	se, a := v.se, v.se.Actor()
	err = answer(Welcome{
		OK: true, Version: s.opts.Version, Handle: se.Handle(), Resumed: se.Resumed(),
		Actor: &WelcomeActor{ID: a.ID, Run: a.Run, Name: a.Name, Path: a.Path, Role: a.Role},
	})
	if err != nil {
		err = errors.Join(err, s.dismiss(ctx, v, nc, connEnded(err)))
		v.leave()
		return visit{}, err
	}
	nc.SetDeadline(time.Time{})
	interruptIfOver(ctx, nc)
	s.opts.Log.WithLevel(visitLevel(a)).Stringer("session", se.ID()).Str("actor", a.Path).Str("run", a.Run).
		Int("pid", peer.PID).Bool("resumed", se.Resumed()).Msg("connected")
	return v, nil
}

// seat opens the session of a client, unless opening ends before. If another server leads the
// client's partition, seat passes the client on to it, until the client leaves or ctx ends.
func (s *Server) seat(ctx, opening context.Context, v *visit, g greeting, first *sync.Once) (passedOn bool, err error) {
	p := passage{Peer: g.peer, began: time.Now()}
	var passed bool
	p.Partition, passed = s.boundFor(g.who, g.nc, g.peer)
	if c, ok := g.nc.(*remote); ok {
		p.Remote, p.Access = true, c.access()
	}
	for {
		var way *Way
		var to net.Conn
		if v.home, way, to, err = s.reach(opening, passed, p); to != nil {
			told := true
			if first.Do(func() { told = false }); told {
				return true, errors.Join(errLate, to.Close())
			}
			heard, err := s.pass(ctx, way, to, g.line, g.nc, g.br)
			if !heard && ctx.Err() == nil {
				s.farewells.add(p.Partition, g.peer)
			}
			return true, err
		}
		if err != nil {
			return false, err
		}
		err = s.visit(opening, v, g)
		if err == nil || v.se != nil || v.home.failed() == nil {
			return false, err
		}
		// The state failed meanwhile. Its next leader opens the session.
	}
}

// visitLevel is the level of a line of the log about a connection of a. Those of an
// operator are commands and hooks: hundreds of agents run dozens of hooks a second, whose
// lines would push all others out of the log.
func visitLevel(a dispatch.Actor) zerolog.Level {
	if a.Role.Outside() {
		return zerolog.DebugLevel
	}
	return zerolog.InfoLevel
}

// errLate says that a client was refused because its session took too long to open.
var errLate = errors.New("it was refused before its session was open")

func refusal(err error) Welcome {
	r := tools.RefusalOf(err)
	e := &HelloError{Code: r.Code, Message: r.Message, Next: r.Next}
	e.Which, _ = r.Data["which"].(string)
	e.Max, _ = r.Data["max"].(int64)
	e.Argument, _ = r.Data["argument"].(string)
	return Welcome{Error: e}
}

// refuseLaunched refuses a process of an agent that shows no credentials, if another
// server leads the run of the agent. The server that leads it knows the processes of
// agents on its own machine, and takes each for its actor.
func (s *Server) refuseLaunched(who dispatch.Credentials, nc net.Conn, peer process.Peer) error {
	switch nc.(type) {
	case *passed, *remote:
		return nil
	}
	if s.opts.Elsewhere == nil || peer.PID == 0 || who.Token != "" || who.Handle != "" {
		return nil
	}
	if _, known := s.homes.knowing(peer); known {
		return nil
	}
	if !peer.Alive() {
		return &dispatch.ForbiddenError{What: fmt.Sprintf("process %d opened this connection and has ended, so nobody knows whether it is an agent's; connect again from a process that stays", peer.PID)}
	}
	if actor, ok := process.Inherited(peer.PID, process.ActorMark); ok {
		return &dispatch.ForbiddenError{What: fmt.Sprintf("process %d comes from a launched agent, actor %.64s, and shows no credentials: connect with the LEASEHOLD_TOKEN that the agent was given; it runs no operator's commands", peer.PID, actor)}
	}
	return nil
}

// interruptIfOver sets the deadline again that the end of ctx has set, in case
// another deadline has just replaced it.
func interruptIfOver(ctx context.Context, nc net.Conn) {
	if ctx.Err() != nil {
		nc.SetReadDeadline(time.Unix(1, 0))
	}
}

// A greeting is a connection whose client has said hello.
type greeting struct {
	nc    net.Conn
	br    *bufio.Reader // what follows the hello
	peer  process.Peer
	line  []byte // the hello as it came
	hello Hello
	who   dispatch.Credentials
}

// readHello reads a hello, and refuses whoever may not send it.
func (s *Server) readHello(nc net.Conn, br *bufio.Reader, peer process.Peer) (g greeting, err error) {
	g = greeting{nc: nc, br: br, peer: peer}
	if g.line, err = readLine(br, maxHello, nil); err != nil {
		return g, fmt.Errorf("no hello: %w", err)
	}
	if g.hello, err = s.parseHello(g.line); err != nil {
		return g, err
	}
	if g.who, err = g.hello.credentials(nc, peer); err != nil {
		return g, err
	}
	return g, s.refuseLaunched(g.who, nc, peer)
}

// A visit is a connection's session, with its home and its actor's share.
type visit struct {
	home   *home
	se     *dispatch.Session
	share  *fair.Share
	groups []string // groups of tools that it wants to see
	access string   // the token of an operator or reader that let it in; "": none did
}

func (v visit) none() bool { return v.se == nil }

func (v visit) leave() {
	v.share.GiveBack(fair.SocketConn)
	v.home.guests.Done()
}

// visit opens the session for a greeting. The caller is a guest of the home; if
// there is no session afterwards, it no longer is. If visit returns an error and
// a session, the session is to be dismissed.
func (s *Server) visit(ctx context.Context, v *visit, g greeting) (err error) {
	defer func() {
		if v.se == nil {
			v.home.guests.Done()
		}
	}()
	if v.groups, err = tools.ParseGroups(g.hello.Tools); err != nil {
		return err
	}
	if dispatch.IsAccess(g.who.Token) {
		v.access = g.who.Token
	}
	if v.se, err = v.home.state.Connect(ctx, g.who, g.peer); err != nil {
		return err
	}
	v.share, err = s.shares.Take(v.se.Actor().ID, fair.SocketConn)
	return err
}

// dismiss gives up the session of a client that was refused or is not there any
// more. A session that was resumed holds what its client has taken before. If
// the client may still be there, it has a short while to come back.
func (s *Server) dismiss(ctx context.Context, v visit, nc net.Conn, cause error) error {
	_, passedOn := nc.(*passed)
	_, overHTTP := nc.(*remote)
	if refused := v.share == nil || errors.Is(cause, errLate); v.se.Resumed() && (refused || passedOn || overHTTP) {
		select {
		case <-time.After(s.opts.DoorGrace):
		case <-ctx.Done():
		case <-v.home.ctx.Done():
		case <-v.se.Context().Done():
		}
	}
	if ctx.Err() != nil || v.home.ctx.Err() != nil {
		return nil // the session outlasts the daemon
	}
	return v.se.Close(cause)
}

// credentials returns the hello's credentials, limited to what the kind of
// connection allows.
func (h Hello) credentials(nc net.Conn, peer process.Peer) (dispatch.Credentials, error) {
	who := dispatch.Credentials{
		Handle: h.Handle, Token: h.Token, Operator: h.Operator, Run: h.Run, Name: h.Name,
		Origin: h.origin(peer),
	}
	switch c := nc.(type) {
	case *remote:
		who, err := c.credentials(who)
		who.Origin.Access = c.access()
		return who, err
	case *passed:
		who.Origin.Access = c.access
		if v := c.voucher; v != nil {
			who.Vouched = &dispatch.Actor{ID: v.ID, Name: v.Name, Path: v.Path, Role: v.Role}
		}
	}
	return who, nil
}

// parseHello reads a hello of this version or an earlier one.
func (s *Server) parseHello(line []byte) (h Hello, err error) {
	var of struct {
		Version int `json:"leasehold"`
	}
	if json.Unmarshal(line, &of) == nil && of.Version > HelloVersion {
		return h, &registry.ArgumentError{Argument: "leasehold", Problem: fmt.Sprintf(
			"must be %d or less: the daemon is of version %s, and older than its client; leasehold restart starts the installed one, and no session ends by that",
			HelloVersion, s.opts.Version)}
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&h); err != nil {
		return h, &registry.ArgumentError{Argument: "hello", Problem: "must be one JSON object in one line: " + err.Error()}
	}
	if h.Leasehold < 1 {
		return h, &registry.ArgumentError{Argument: "leasehold", Problem: fmt.Sprintf("must be from 1 to %d", HelloVersion)}
	}
	return h, nil
}

// maxMark is the longest mark of a client, in bytes.
const maxMark = 64

// maxDirectory is the longest directory that is stored for a session.
const maxDirectory = 1 << 10

// origin returns where the process works, if h says so.
func (h Hello) origin(peer process.Peer) dispatch.Origin {
	if len(h.Mark) > maxMark || !printable(h.Mark) {
		h.Mark = ""
	}
	if peer.PID == 0 || peer.Elsewhere() && h.Mark != "" || !peer.Elsewhere() && !process.Sees(peer.PID) {
		return dispatch.Origin{Mark: h.Mark}
	}
	if !filepath.IsAbs(h.Directory) || len(h.Directory) > maxDirectory || !printable(h.Directory) {
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
