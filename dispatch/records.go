package dispatch

import (
	"cmp"
	"errors"
	"iter"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch/mail"
	"github.com/leasehold/leasehold/dispatch/process"
	"github.com/leasehold/leasehold/dispatch/rows"
	"github.com/leasehold/leasehold/dispatch/work"
	"github.com/leasehold/leasehold/engine"
	"github.com/leasehold/leasehold/kvstore"
)

// A Role is the role of an actor in the tree.
type Role string

const (
	Root     Role = "root"
	Sublead  Role = "sublead"
	Worker   Role = "worker"
	Operator Role = "operator" // the user of the daemon, not part of a tree
	Reader   Role = "reader"   // sees what an operator sees, and can change nothing
)

// operatorPath is shown as the path of the operator.
const operatorPath = "operator"

// Leads reports whether actors with this role have their own layer.
func (r Role) Leads() bool { return r == Root || r == Sublead }

// Outside reports whether this role is outside every tree.
func (r Role) Outside() bool { return r == Operator || r == Reader }

// An Actor is a party of a run.
type Actor struct {
	ID        uuid.UUID
	Run       string // the run's name
	Name      string
	Role      Role
	Path      string    // names below the root joined by →; the root's is "root"
	Layer     uuid.UUID // that it is a member of; for the root, the layer it leads
	Leads     uuid.UUID // the layer it leads; zero for a worker
	ReadDown  bool      // its parent may read its layer
	Transient bool      // joined without being spawned; ends with its last session
	CreatedAt time.Time
	EndedAt   time.Time // zero while it lives
	EndCause  string
	EndedBy   string           `json:",omitempty"` // path of the actor that ended it
	Held      []work.LeaseName `json:",omitempty"` // leases and claims it held when it ended, at most work.MaxLeaseNames
	Leaving   bool             `json:",omitempty"` // its entries in its layer are being removed
	TokenHash []byte           `json:",omitempty"` // nil: nobody can connect as it; unused once it has ended

	TokenExpires time.Time `json:",omitzero"` // by the wall clock; zero: when the actor has ended
}

// Ended reports whether the actor has ended.
func (a Actor) Ended() bool { return !a.EndedAt.IsZero() }

// homeLayer returns the layer that the actor's own calls refer to: the layer it
// leads, or else the layer it is a member of.
func (a Actor) homeLayer() uuid.UUID {
	if a.Role.Leads() {
		return a.Leads
	}
	return a.Layer
}

// A Run is one dispatch tree.
type Run struct {
	Name      string
	ID        uuid.UUID
	Root      uuid.UUID // the root actor
	Layer     uuid.UUID // the root's layer
	Caps      Caps
	Actors    int // living
	CreatedAt time.Time
	EndedAt   time.Time
}

func (r Run) scope() string { return "run:" + r.ID.String() }

// Caps limit the tree of a run. A zero field means the default, which is given
// behind it.
type Caps struct {
	Depth       int            // greatest number of names in a path; 4
	LayerActors int            // living actors of a layer without its lead; 1000
	RunActors   int            // living actors of a run; 10 000
	Store       kvstore.Limits // of each layer's store
}

type layerRecord struct {
	ID      uuid.UUID
	Run     string
	RunID   uuid.UUID
	Lead    uuid.UUID
	Path    string // of the lead
	Members int    // living, without the lead
}

func (l layerRecord) scope() string { return layerScope(l.ID) }

func layerScope(id uuid.UUID) string { return "layer:" + id.String() }

// A sessionRecord holds what is needed to continue a session after a restart.
type sessionRecord struct {
	ID     uuid.UUID
	Actor  uuid.UUID
	Secret []byte // hash of the handle's secret
	Peer   process.Peer
	Origin Origin `json:",omitzero"`
	Guest  bool   `json:",omitempty"` // the daemon keeps it open without a connection

	Subscribed []string     `json:",omitempty"` // URIs of resources
	Agents     agentsRecord `json:",omitzero"`
}

const (
	// RunPrefix is the prefix of the keys of runs; the name of the run follows.
	RunPrefix = "run/"

	runPrefix    = RunPrefix
	layerPrefix  = "layer/"
	actorPrefix  = "actor/"
	memberPrefix = "member/"

	// SessionPrefix is the prefix of the keys of session rows, for an
	// [engine.Observer].
	SessionPrefix = "session/"
)

func runKey(name string) string                         { return runPrefix + name }
func layerKey(id uuid.UUID) string                      { return layerPrefix + string(id[:]) }
func actorKey(id uuid.UUID) string                      { return actorPrefix + string(id[:]) }
func memberKeys(layer uuid.UUID) string                 { return memberPrefix + string(layer[:]) }
func memberKey(layer uuid.UUID, name string) string     { return memberKeys(layer) + name }
func formerKeys(layer uuid.UUID) string                 { return formerPrefix + string(layer[:]) }
func formerKey(layer, actor uuid.UUID) string           { return formerKeys(layer) + string(actor[:]) }
func sessionKey(id uuid.UUID) string                    { return SessionPrefix + string(id[:]) }
func getRun(tx engine.Tx, name string) (Run, bool)      { return rows.Get[Run](tx, runKey(name)) }
func getActor(tx engine.Tx, id uuid.UUID) (Actor, bool) { return rows.Get[Actor](tx, actorKey(id)) }
func getLayer(tx engine.Tx, id uuid.UUID) (layerRecord, bool) {
	return rows.Get[layerRecord](tx, layerKey(id))
}

func putRun(tx engine.Tx, r Run)           { rows.Put(tx, runKey(r.Name), r, uuid.Nil) }
func putActor(tx engine.Tx, a Actor)       { rows.Put(tx, actorKey(a.ID), a, uuid.Nil) }
func putLayer(tx engine.Tx, l layerRecord) { rows.Put(tx, layerKey(l.ID), l, uuid.Nil) }
func putSession(tx engine.Tx, s sessionRecord) {
	rows.Put(tx, sessionKey(s.ID), s, s.Actor)
}

func putMember(tx engine.Tx, a Actor) {
	tx.Put(engine.Row{Key: memberKey(a.Layer, a.Name), Value: string(a.ID[:]) + string(a.Leads[:])})
}

// memberNamed finds an actor of a layer, living or ended.
func memberNamed(tx engine.Tx, layer uuid.UUID, name string) (Actor, bool) {
	row, ok := tx.Get(memberKey(layer, name))
	if !ok {
		return Actor{}, false
	}
	return memberOf(tx, row)
}

// members yields the actors of a layer by name, without its lead.
func members(tx engine.Tx, layer uuid.UUID) iter.Seq[Actor] { return membersFrom(tx, layer, "") }

// membersFrom yields members without those whose names sort before from.
func membersFrom(tx engine.Tx, layer uuid.UUID, from string) iter.Seq[Actor] {
	return func(yield func(Actor) bool) {
		for row := range tx.ScanFrom(memberKeys(layer), memberKey(layer, from)) {
			if a, ok := memberOf(tx, row); ok && !yield(a) {
				return
			}
		}
	}
}

func memberOf(tx engine.Tx, row engine.Row) (Actor, bool) {
	id, _, ok := memberIDs(tx, row)
	if !ok {
		return Actor{}, false
	}
	return getActor(tx, id)
}

// memberIDs returns the ids of a member and of the layer that it leads, which is
// zero for a worker. It decodes no actor if the row has both.
func memberIDs(tx engine.Tx, row engine.Row) (id, leads uuid.UUID, ok bool) {
	id, err := uuid.FromBytes([]byte(row.Value[:min(len(row.Value), len(id))]))
	if err == nil && len(row.Value) > len(id) {
		leads, err = uuid.FromBytes([]byte(row.Value[len(id):]))
		if err == nil {
			return id, leads, true
		}
	}
	if err != nil {
		rows.Corrupt(tx, row.Key, err)
		return id, leads, false
	}
	a, ok := getActor(tx, id) // the row has the id alone: an earlier version wrote it
	return id, a.Leads, ok
}

// sessionsOf yields the sessions of an actor.
func sessionsOf(tx engine.Tx, actor uuid.UUID) iter.Seq[sessionRecord] {
	return func(yield func(sessionRecord) bool) {
		for row := range tx.Owned(actor, SessionPrefix) {
			if record, ok := rows.Decode[sessionRecord](tx, row); ok && !yield(record) {
				return
			}
		}
	}
}

// endedError describes who ended the actor, why, and which leases it lost.
func (a Actor) endedError() *EndedError {
	return &EndedError{Path: a.Path, Run: a.Run, By: a.EndedBy, Cause: a.EndCause, At: a.EndedAt, Held: a.Held}
}

// checkRecords returns an error if a record cannot be read.
func checkRecords(tx engine.Tx) error {
	return cmp.Or(
		rows.Check[Run](tx, runPrefix),
		rows.Check[layerRecord](tx, layerPrefix),
		rows.Check[Actor](tx, actorPrefix),
		rows.Check[sessionRecord](tx, SessionPrefix),
		rows.Check[Access](tx, accessPrefix),
		work.CheckRecords(tx),
		mail.CheckRecords(tx),
	)
}

// checkEndings returns an error that names records of what is ending that cannot be read.
// They affect only what they belong to, so Open goes on.
func checkEndings(tx engine.Tx) error {
	return errors.Join(
		rows.Check[treeEnding](tx, endingTree),
		rows.Check[sessionRecord](tx, endingSession),
		rows.Check[removal](tx, endingRemoval),
	)
}
