package tools

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leasehold/leasehold/dispatch"
	"github.com/leasehold/leasehold/kvstore"
	"github.com/leasehold/leasehold/registry"
)

// layerLeaseTools returns the tools for leases of a layer. The description of
// run_lease_acquire explains what a lease is.
func layerLeaseTools() []Tool {
	return []Tool{
		tool("lease_acquire", "Lease something of your layer",
			"Lease what only your own sub-tree touches: in another layer the same name is another lease. Otherwise the same as run_lease_acquire.",
			Effect{Idempotent: true}, acquireLayer),
		tool("lease_release", "Release a lease of your layer",
			"The same as run_lease_release, for leases from lease_acquire.",
			Effect{Idempotent: true}, release),
	}
}

// leaseTools returns the tools for leases of the run, and for all leases.
func leaseTools() []Tool {
	return []Tool{
		tool("run_lease_acquire", "Lease something of the run",
			"Lease a file, a port, a deployment or whatever else other agents may touch, before you touch it. "+
				"If another agent holds it you are told who, where and until when; with wait_secs you wait in line, first come, first served. "+
				"If you hold it, you get it again, extended if that is longer. It ends when you release it, when your session ends (disconnect, crash, cancel), or at its TTL.",
			Effect{Idempotent: true}, acquireRun),
		tool("run_lease_release", "Release a lease of the run",
			"Release your lease; the first in line gets it at once. If it is no longer yours, the reply says why.",
			Effect{Idempotent: true}, release),
		tool("lease_acquire_many", "Take several leases at once",
			"Lease several things, all or none. Two agents that take them one by one can block each other.",
			Effect{Idempotent: true}, acquireMany),
		tool("lease_renew", "Keep a lease for longer",
			"Move the end of your lease to ttl_secs from now, if that is later. Called from a new session, it moves the lease there. LEASE_LOST says why it is gone: stop touching what it guards.",
			Effect{Idempotent: true}, renew),
		tool("lease_list", "See who holds what",
			"List the leases that you can ask for, with their holders and who waits, first in line first. Only your own have a lease_id.",
			Effect{ReadOnly: true, Idempotent: true}, listLeases),
		tool("lease_check", "Check a token",
			"Check whether a token is that of the latest grant of a lease, before you accept a write that comes with it.",
			Effect{ReadOnly: true, Idempotent: true}, checkToken),
		tool("lease_transfer", "Offer a lease to another actor",
			"Offer a lease of yours to an actor by its path. It accepts by acquiring the lease, ahead of all who wait, and gets a new token; until then you hold it.",
			Effect{Idempotent: true}, transfer),
		tool("lease_revoke", "Take a lease away",
			"Take a lease away from an actor of your sub-tree. The next in line gets it at once; the holder is told who revoked it and why, and its token is refused. It may be writing at this instant: ask it first if you can.",
			Effect{Destructive: true}, revokeLease),
	}
}

// acquireArgs are the arguments that lease_acquire and run_lease_acquire share.
type acquireArgs struct {
	TTL       seconds `json:"ttl_secs,omitempty" doc:"how long you hold it unless you renew it" min:"1" max:"86400" default:"60"`
	Wait      seconds `json:"wait_secs,omitempty" doc:"how long to wait in line if it is held" min:"0" max:"50" default:"0"`
	Ticket    string  `json:"ticket,omitempty" doc:"from WAIT_TIMEOUT: keeps your place in line for 30 s"`
	RequestID string  `json:"request_id,omitempty" doc:"the same id gets the same grant again" max:"128"`
	KeepAlive bool    `json:"keep_alive,omitempty" doc:"extend it while your session lives" default:"false"`
	Mode      string  `json:"mode,omitempty" doc:"shared: held together with other readers" enum:"exclusive|shared" default:"\"exclusive\""`
	Reason    string  `json:"reason,omitempty" doc:"what for; shown to refused agents (≤ 256 bytes)" max:"256"`
	asArg
}

func (a acquireArgs) request(ctx context.Context, key string) (req registry.Request, err error) {
	req = registry.Request{
		Holder: registry.Holder{Party: a.party(ctx)}, Key: key, TTL: a.TTL.duration(), Wait: a.Wait.duration(),
		RequestID: a.RequestID, KeepAlive: a.KeepAlive, Shared: a.Mode == "shared", Reason: a.Reason,
	}
	if a.Ticket != "" {
		req.Ticket, err = parseID("ticket", a.Ticket)
	}
	return req, err
}

type acquireLayerArgs struct {
	Name string `json:"name" doc:"path below /leases/, such as output.json" min:"1" max:"512"`
	acquireArgs
}

type acquireRunArgs struct {
	keyOrPath
	acquireArgs
}

type acquireManyArgs struct {
	Leases    []wanted `json:"leases" doc:"of scope layer or run; mode shared or exclusive" min:"1" max:"16"`
	TTL       seconds  `json:"ttl_secs,omitempty" doc:"of each" min:"1" max:"86400" default:"60"`
	Wait      seconds  `json:"wait_secs,omitempty" doc:"in line" min:"0" max:"50" default:"0"`
	Ticket    string   `json:"ticket,omitempty" doc:"from the WAIT_TIMEOUT"`
	RequestID string   `json:"request_id,omitempty" doc:"makes it idempotent" max:"128"`
	KeepAlive bool     `json:"keep_alive,omitempty" doc:"with your session" default:"false"`
	Reason    string   `json:"reason,omitempty" doc:"what for (≤ 256 bytes)" max:"256"`
	asArg
}

func (a acquireManyArgs) request(ctx context.Context) (registry.Request, error) {
	return acquireArgs{
		TTL: a.TTL, Wait: a.Wait, Ticket: a.Ticket, RequestID: a.RequestID, KeepAlive: a.KeepAlive, Reason: a.Reason, asArg: a.asArg,
	}.request(ctx, "")
}

// A wanted is one of several leases to be taken.
type wanted struct {
	Scope string `json:"scope" doc:"of the lease" enum:"layer|run"`
	keyOrPath
	Mode string `json:"mode,omitempty" doc:"shared: held together with other readers" enum:"exclusive|shared" default:"\"exclusive\""`
}

// A lease has the fields that are shown of every lease.
type lease struct {
	Scope       string `json:"scope" jsonschema:"layer or run" told:"line"`
	Token       uint64 `json:"token" jsonschema:"fencing token: greater than that of any earlier grant" told:"line"`
	Holder      holder `json:"holder"`
	Mode        string `json:"mode" jsonschema:"exclusive or shared"`
	Reason      string `json:"reason,omitempty" jsonschema:"why its holder wants it"`
	OfferedTo   string `json:"offered_to,omitempty" jsonschema:"path of the actor that may have it next"`
	KeepAlive   bool   `json:"keep_alive" jsonschema:"it is extended for as long as its holder is connected"`
	AcquiredAt  stamp  `json:"acquired_at"`
	HeldMS      int64  `json:"held_ms" jsonschema:"for how long it has been held, in milliseconds"`
	ExpiresAt   stamp  `json:"expires_at" jsonschema:"it is not taken before this instant"`
	ExpiresInMS int64  `json:"expires_in_ms" jsonschema:"what is left, in milliseconds"`
}

func leaseOf(l registry.Lease) lease {
	return lease{
		Scope: scopeWord(l.Scope), Token: l.Token, Holder: holderOf(l.Holder), Mode: l.Mode(), Reason: l.Reason, OfferedTo: l.Offer.Path,
		KeepAlive: l.KeepAlive, AcquiredAt: stampOf(l.AcquiredAt), HeldMS: l.HeldFor.Milliseconds(), ExpiresAt: stampOf(l.ExpiresAt), ExpiresInMS: l.ExpiresIn.Milliseconds(),
	}
}

func (l lease) named(key string) string { return l.Scope + " lease " + strconv.Quote(key) }

func (l lease) expires() string {
	text := "expires in " + strconv.FormatInt((l.ExpiresInMS+999)/1000, 10) + "s"
	if l.KeepAlive {
		text += ", kept alive"
	}
	if l.Mode == "shared" {
		text += ", shared"
	}
	return text
}

// Answers that grant or renew a lease.
type (
	layerGrant struct {
		LeaseID string `json:"lease_id" jsonschema:"secret: needed to renew or release" told:"line"`
		Name    string `json:"name" jsonschema:"without /leases/" told:"line"`
		lease
		Reentrant bool     `json:"reentrant" jsonschema:"you held it already"`
		Similar   []string `json:"similar,omitempty" jsonschema:"held keys that differ only in spelling"`
	}
	runGrant struct {
		LeaseID string `json:"lease_id" jsonschema:"secret: needed to renew or release" told:"line"`
		Key     string `json:"key" told:"line"`
		lease
		Reentrant bool     `json:"reentrant" jsonschema:"you held it already"`
		Similar   []string `json:"similar,omitempty" jsonschema:"held keys that differ only in spelling"`
	}
	manyGrants struct {
		Leases []anyGrant `json:"leases" jsonschema:"in the order of the request"`
	}
	anyGrant struct {
		LeaseID string `json:"lease_id" jsonschema:"secret: needed to renew or release"`
		Name    string `json:"name,omitempty" jsonschema:"of a layer's lease"`
		Key     string `json:"key,omitempty" jsonschema:"of a run's lease"`
		lease
		Reentrant bool     `json:"reentrant" jsonschema:"you held it already"`
		Similar   []string `json:"similar,omitempty" jsonschema:"held keys that differ only in spelling"`
	}
	renewed struct {
		LeaseID string `json:"lease_id" jsonschema:"secret: needed to renew or release" told:"line"`
		Name    string `json:"name,omitempty" jsonschema:"of a layer's lease" told:"line"`
		Key     string `json:"key,omitempty" jsonschema:"of a run's lease" told:"line"`
		lease
	}
)

func (g layerGrant) Text() string {
	return g.granted(g.Name, g.LeaseID, g.Reentrant) + alike(g.Similar) + "; give it back with lease_release"
}

func (g runGrant) Text() string {
	return g.granted(g.Key, g.LeaseID, g.Reentrant) + alike(g.Similar) + "; give it back with run_lease_release"
}

func (m manyGrants) Text() string {
	var texts []string
	for _, g := range m.Leases {
		texts = append(texts, g.granted(g.Name+g.Key, g.LeaseID, g.Reentrant)+alike(g.Similar))
	}
	return strings.Join(texts, "; ") + "; give each back with run_lease_release"
}

// alike warns that another key may mean the same thing.
func alike(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return fmt.Sprintf("; also held, and different only in spelling: %q", keys)
}

// longHeld is the age from which a re-entry says how long the lease has been
// held. A sub-agent that finds the lease of another sub-agent should notice
// that.
const longHeld = 5 * time.Second

func (l lease) granted(key, id string, reentrant bool) string {
	verb := "acquired"
	if reentrant {
		verb = "already yours"
		if l.HeldMS >= longHeld.Milliseconds() {
			verb += fmt.Sprintf(", held for %ds", l.HeldMS/1000)
		}
	}
	return l.line(key, verb, id)
}

func (l lease) line(key, verb, id string) string {
	return l.named(key) + " " + verb + ", " + l.expires() + ", token " + strconv.FormatUint(l.Token, 10) + ", lease_id " + id
}

func (r renewed) Text() string {
	return r.line(r.Name+r.Key, "renewed", r.LeaseID)
}

func acquireLayer(ctx context.Context, se *dispatch.Session, a acquireLayerArgs) (layerGrant, error) {
	name, err := kvstore.LeaseName(a.Name)
	if err != nil {
		return layerGrant{}, err
	}
	g, err := acquire(ctx, se, dispatch.LayerScope, name, a.acquireArgs)
	return layerGrant{g.ID.String(), name, leaseOf(g.Lease), g.Reentrant, g.Similar}, err
}

func acquireRun(ctx context.Context, se *dispatch.Session, a acquireRunArgs) (runGrant, error) {
	key, err := a.in(ctx, se, dispatch.RunScope)
	if err != nil {
		return runGrant{}, err
	}
	g, err := acquire(ctx, se, dispatch.RunScope, key, a.acquireArgs)
	return runGrant{g.ID.String(), key, leaseOf(g.Lease), g.Reentrant, g.Similar}, err
}

// of says which of several leases of an argument an error is about.
func of(argument string, i, several int, err error) error {
	if several == 1 {
		return err
	}
	return fmt.Errorf("%s[%d]: %w", argument, i, err)
}

func acquireMany(ctx context.Context, se *dispatch.Session, a acquireManyArgs) (manyGrants, error) {
	req, err := a.request(ctx)
	if err != nil {
		return manyGrants{}, err
	}
	wants := make([]dispatch.Want, len(a.Leases))
	for i, w := range a.Leases {
		scope := dispatch.Scope(w.Scope)
		key, err := w.in(ctx, se, scope)
		if err != nil {
			return manyGrants{}, of("leases", i, len(a.Leases), err)
		}
		wants[i] = dispatch.Want{Scope: scope, Key: key, Shared: w.Mode == "shared"}
	}
	list, err := se.AcquireAll(ctx, wants, req)
	err = offerLine(err)
	many := manyGrants{Leases: []anyGrant{}}
	for _, g := range list {
		name, key := nameOrKey(g.Lease)
		many.Leases = append(many.Leases, anyGrant{g.ID.String(), name, key, leaseOf(g.Lease), g.Reentrant, g.Similar})
	}
	return many, err
}

func acquire(ctx context.Context, se *dispatch.Session, scope dispatch.Scope, key string, a acquireArgs) (registry.Grant, error) {
	req, err := a.request(ctx, key)
	if err != nil {
		return registry.Grant{}, err
	}
	g, err := se.Acquire(ctx, scope, req)
	return g, offerLine(err)
}

// An offeredError is the refusal of a caller that did not ask to wait.
type offeredError struct{ error }

func (e offeredError) Error() string { return e.error.Error() + e.Next() }
func (e offeredError) Unwrap() error { return e.error }
func (e offeredError) Next() string  { return "; call again with wait_secs to wait in line" }

func offerLine(err error) error {
	if _, held := errors.AsType[*registry.HeldError](err); held {
		return offeredError{err}
	}
	return err
}

type leaseIDArg struct {
	LeaseID string `json:"lease_id" doc:"from the grant"`
}

func (a leaseIDArg) id() (uuid.UUID, error) { return parseID("lease_id", a.LeaseID) }

type renewArgs struct {
	leaseIDArg
	TTL seconds `json:"ttl_secs,omitempty" doc:"default: as long as before" min:"1" max:"86400"`
	asArg
}

func renew(ctx context.Context, se *dispatch.Session, a renewArgs) (renewed, error) {
	id, err := a.id()
	if err != nil {
		return renewed{}, err
	}
	l, err := se.Renew(ctx, a.party(ctx), id, a.TTL.duration())
	if err != nil {
		return renewed{}, err
	}
	name, key := nameOrKey(l)
	return renewed{l.ID.String(), name, key, leaseOf(l)}, nil
}

// nameOrKey returns the name of a layer's lease, or the key of a run's lease.
func nameOrKey(l registry.Lease) (name, key string) {
	if scopeWord(l.Scope) == string(dispatch.LayerScope) {
		return l.Key, ""
	}
	return "", l.Key
}

type released struct {
	Released bool   `json:"released"`
	Reason   string `json:"reason,omitempty" jsonschema:"why it was not held any more" told:"line"`
}

func (r released) Text() string {
	if r.Released {
		return "released"
	}
	return "nothing to release: " + r.Reason
}

func release(ctx context.Context, se *dispatch.Session, a leaseIDArg) (released, error) {
	id, err := a.id()
	if err != nil {
		return released{}, err
	}
	ok, why, err := se.Release(ctx, caller(ctx), id)
	return released{ok, why}, err
}

type listArgs struct {
	Scope  string `json:"scope,omitempty" doc:"whose leases" enum:"layer|run|all" default:"\"all\""`
	Prefix string `json:"prefix,omitempty" doc:"only names and keys that start with this, such as file:src/" max:"512"`
	After  string `json:"after,omitempty" doc:"next of the previous reply" max:"640"`
	Limit  int    `json:"limit,omitempty" doc:"how many at most" min:"1" max:"200" default:"50"`
}

func (a listArgs) query() dispatch.LeaseQuery {
	return dispatch.LeaseQuery{Scopes: scopesOf(a.Scope), Prefix: a.Prefix, After: a.After, Limit: a.Limit}
}

type leaseList struct {
	Next     string        `json:"next,omitempty" jsonschema:"there are more: ask again with after"`
	Leases   []listedLease `json:"leases"`
	Reserved []reservation `json:"reserved,omitempty" jsonschema:"keys that nobody holds, kept for the first in line"`
}

// A reservation is a key that is kept for a few seconds for the first in line.
type reservation struct {
	Scope       string `json:"scope" jsonschema:"layer or run"`
	Name        string `json:"name,omitempty" jsonschema:"of a layer's lease"`
	Key         string `json:"key,omitempty" jsonschema:"of a run's lease"`
	Layer       string `json:"layer,omitempty" jsonschema:"path of the layer's lead"`
	For         string `json:"for" jsonschema:"path of the first in line"`
	ExpiresInMS int64  `json:"expires_in_ms" jsonschema:"what is left, in milliseconds"`
}

func reservationOf(k registry.Reservation) reservation {
	return reservation{For: k.Holder.Path, ExpiresInMS: k.Left.Milliseconds()}
}

func (r reservation) String() string {
	return fmt.Sprintf("reserved for %s, which is first in line, for %ds", r.For, (r.ExpiresInMS+999)/1000)
}

type listedLease struct {
	LeaseID string `json:"lease_id,omitempty" jsonschema:"of your own"`
	Name    string `json:"name,omitempty" jsonschema:"of a layer's lease"`
	Key     string `json:"key,omitempty" jsonschema:"of a run's lease"`
	lease
	Layer   string    `json:"layer,omitempty" jsonschema:"path of the layer's lead"`
	TTLMS   int64     `json:"ttl_ms" jsonschema:"of the grant, or as it was extended"`
	Waiters []waiting `json:"waiters" jsonschema:"first in line first"`
	InLine  int       `json:"in_line" jsonschema:"how many wait; waiters are the first of them"`
}

type waiting struct {
	holder
	WaitingMS int64 `json:"waiting_ms"`
}

func (l leaseList) Text() string {
	if len(l.Leases) == 1 && l.Next == "" && len(l.Reserved) == 0 {
		one := l.Leases[0]
		return fmt.Sprintf("%s held by %s, %s", one.named(one.Name+one.Key), one.Holder.who(), one.expires())
	}
	var line strings.Builder
	line.WriteString(counted(len(l.Leases), "lease", "leases", l.Next))
	for _, r := range l.Reserved {
		line.WriteString(fmt.Sprintf("; %s lease %q is %s", r.Scope, r.Name+r.Key, r))
	}
	return line.String()
}

func listLeases(ctx context.Context, se *dispatch.Session, a listArgs) (leaseList, error) {
	return fitting(a.Limit, func(limit int) (leaseList, []listedLease, error) {
		q := a.query()
		q.Limit = limit
		page, err := se.Leases(ctx, q)
		list := leaseListOf(page, se.ID())
		return list, list.Leases, err
	})
}

func scopesOf(word string) []dispatch.Scope {
	if word == "all" {
		return []dispatch.Scope{dispatch.LayerScope, dispatch.RunScope}
	}
	return []dispatch.Scope{dispatch.Scope(word)}
}

// leaseListOf converts a page of leases. It includes lease_id only for the
// session own.
func leaseListOf(page dispatch.LeasePage, own uuid.UUID) leaseList {
	list := leaseList{Leases: []listedLease{}, Next: page.Next}
	found := branches{}
	for _, info := range page.Leases {
		l := listedLease{lease: leaseOf(info.Lease), Layer: info.Layer, TTLMS: info.TTL.Milliseconds(), Waiters: []waiting{}, InLine: info.InLine}
		l.Name, l.Key = nameOrKey(info.Lease)
		l.Holder.origin = originOf(info.Origin, found)
		if info.Holder.Session == own {
			l.LeaseID = info.ID.String()
		}
		for _, w := range info.Waiters {
			l.Waiters = append(l.Waiters, waiting{holderOf(w.Holder), w.For.Milliseconds()})
		}
		list.Leases = append(list.Leases, l)
	}
	for _, kept := range page.Reserved {
		r := reservationOf(kept.Reservation)
		r.Scope, r.Layer, r.Key = string(kept.Scope), kept.Layer, kept.Key
		if kept.Scope == dispatch.LayerScope {
			r.Name, r.Key = r.Key, ""
		}
		list.Reserved = append(list.Reserved, r)
	}
	return list
}
