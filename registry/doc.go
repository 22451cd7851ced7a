// Package registry is the lease core: who holds what, until when, and who is
// next.
//
// This package serves the daemon and is not public: programs use package
// client of this module.
//
// There are only a few types here. A [Core] is the rules over one engine. A
// [Registry] is the Core bound to one scope: "run:<id>" for what a whole run
// contends for, "layer:<id>" for one layer's /leases/*. A [Lease] is held by a
// [Holder]: a session, or one of the sub-agents (parties) that share it. The
// holder's actor and path are for people who read who is in their way. A refused
// caller gets a [HeldError]; a caller that lost a lease gets a [LostError].
//
// # Contract
//
//   - At most one party holds a key of a scope, or several share it. Those who ask for
//     it shared wait behind whoever asked before for it alone. Each grant carries a token
//     greater than any this state ever issued. Renewal and re-entry keep it;
//     adoption by another party of the same actor changes it.
//   - A lease lasts at least its ttl from the last grant or renewal. It may be
//     taken only when now > deadline. A restart never cuts one short.
//   - A deadline is only ever moved later.
//   - A lease past its deadline that nobody waits for has lapsed: its key is free
//     for everybody else, and its holder may still renew it.
//   - Release, expiry and the end of a session hand over, in the transaction
//     that frees the key, to the first in line. Nobody overtakes.
//   - A party has one place in each line, and one more for each set of keys that it asks
//     for together. Lines count parties. A place is kept for [ParkTime] after a call
//     has timed out, and through a restart.
//   - What a call was granted is recorded under the call's name (package call), in
//     the transaction that grants. A call that is cancelled leaves nothing behind,
//     unless another call was told of the same grant.
//   - A revoke takes the key from those who hold it and hands it over in the same
//     transaction. It is no way to end a claim on a task: cancelling the task is.
//   - A lease that is offered to an actor is its holder's until the actor acquires the
//     key, which it may before all who wait; they keep their places.
//   - Every loss is told: to the holder's session, or to the next session of its
//     actor. A crash may make it told twice. A holder is told once that somebody waits
//     for its lease, and once more after a crash.
//   - A refusal changes nothing and says what is in the way now.
//
// # A lease
//
//	       granted                    deadline, nobody waits
//	(free) ───────▶ held ──────────────────────────────────────▶ lapsed
//	       ▲         │ ▲                                        │  │
//	       │         │ └──────────── renewed ───────────────────┘  │
//	       └─────────┴─ released; expired, session ended, … ◀──────┘ taken by another, or an hour later
//	                    or revoked (then handed over, reserved or free);
//	                    or offered to another, who acquired it
//
// # A place in the line
//
//	          acquire, held            freed, first in line, call alive
//	(none) ───────────────▶ waiting ───────────────────────────────────▶ holds
//	                         │   ▲                                         ▲
//	   wait over, restart,   │   │ acquire again                           │ acquire
//	   or connection lost    ▼   │                                         │
//	                        parked ── freed, first in line, once ──▶ key reserved
//	                         │                                         │
//	                         └──── 30 s ───▶ (none)          5 s ──▶ next in line
//
// A key that becomes free while the first in line is parked is reserved for it for
// [ReserveTime], once for each place. After that, parties whose calls wait come
// before parties that are away.
//
// # Key schema
//
//	lease/<scope>␀<key>[␀<number>]  Lease       owner session, due at its next attention; with a number if it is shared
//	wait/<scope>␀<key>␀<number>     a place     owner session, due when it, or what is reserved for it, is given up
//	lost/<actor><lease id>[<token>] Notice      owner the session that is told, or nobody if any of the actor is; due when it is forgotten; with the token if it has no id
//	lost/<actor><lease id>o         Notice      of the offer of a lease to the actor
//
// and in memory only, rebuilt by [Core.Recover]:
//
//	leaseid/<lease id>              its row key
//	alike/<scope>␀<spelling>␀<key>  of a key that is held and not spelt as it could be
//	offered/<scope>␀<key>[␀<number>]  of a lease that is offered; owner the actor that may accept it
//	place/<actor><session><party>␀<scope>␀<key>   the row key of the party's place; what its calls watch
//	count/…                         leases of a scope and an actor, those of its layer, its claims; places of an actor; parties in the line for a key; untold notices of an actor
//	count/untold/<as in lost/>      of a notice that has not been told
//	await/…                         which actors a party's calls wait for: see Deadlocks
//	lost/<actor><lease id>w         Notice, that somebody waits; owner the holder's session; begins anew
//
// Tokens and the numbers of places come from the counter of package event, which rises
// through restarts. What becomes of a lease is an event there, in the same transaction. A line
// is bounded, so who is next is found by going through it from its front.
//
// # Modes, and what may follow
//
// Every holder has a row, and its key begins with the key that it holds. A shared
// one has its first token behind it. So one short scan finds all who hold a key, and
// none of its longer neighbours. What a party finds that asks or waits (view) is in those
// rows and in the line, and nowhere else. Whether somebody wants a lease to end (wanted)
// is in the line alone. Whenever a lease ends, or a place that was in the way
// goes, the line is served from its front (handOver); when a party comes to have a lease,
// its own places are served (settle).
//
// Keys that overlap, as dir/** does with what is below dir, are one neighbourhood
// (near): the rows of the directories above a path, one look-up each, and for dir/**
// one scan of what is below it. Places are numbered across all lines, so the lines of a
// neighbourhood merge into one order. A request for several keys has a place in each of
// their lines under one number, and is served when it can be in all of them, or not at
// all. An offer is accepted by whoever asks for its very key, or waits for it.
//
// # Deadlocks
//
// The same rows are the edges of a wait-for graph: from a place to the holders, and to
// the places before it, that keep it waiting; and from a wait for actors to what they
// wait for. Whoever would close a cycle by waiting is refused with a [DeadlockError]. An
// accepted transfer, an adoption, and an offer that is taken back may close one without
// a refusal: its waits end with their time, and the next of them is refused.
//
// # Deadlines
//
// A lease's deadline is when its row is due, or a known time after that: so a
// renewal changes the row's due time alone. It only Touches the row and costs no
// disk write. After a restart each lease gets its full ttl from the moment of
// recovery.
//
// By that alone, a state that restarts often would keep a day's lease for ever. So a
// lease of more than five minutes also stores its deadline, on the engine's running clock, which
// goes on through restarts. A renewal writes a new one if it is more than five
// minutes later than the stored one. A restart adds those five minutes, and leaves at
// least five minutes to a lease once after its last renewal.
//
// # The choices not taken
//
// Semaphores (a capacity of n holders) do not follow from modes. The two questions
// would count holders instead of comparing each with the request, what to count is not
// defined where dir/** overlaps keys below it, and a wait for any one of n holders is
// no edge of a wait-for graph: a cycle of such waits need not be a deadlock.
//
// A place could be found by a ticket that the client must send back, and the key of a
// parked place could be given to whoever waits behind it. But
// models forget tickets, so an agent that asked four times would have four places, and
// one that was thinking when the key became free would lose its turn.
package registry
