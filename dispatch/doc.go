// Package dispatch is the run: its tree of layers and actors, the sessions
// through which they act, and the leases that span it.
//
// A run is one tree, by name. A lead (the root, or a sub-lead at any depth)
// has a layer: itself and those it spawned directly. Each layer has a store,
// and with it the leases of that layer; the run has one [registry.Registry]
// more, for what all of it contends for. An [Actor] is a party in that tree
// and acts through a [Session], one live connection or process.
//
// # Contract
//
//   - A session knows its actor by the credentials it connected with, never by
//     an argument. What it may reach follows from the actor's place.
//   - [Session.Close] is the only way by which a connection gives back what it
//     held: every lease in every scope and every place in line, in one
//     transaction. The end of an actor ends its sessions, and for a lead its
//     whole sub-tree, by the same rule in one transaction.
//   - A restart of the daemon ends no session. Who was connected resumes with
//     its handle. One whose process is gone by then ends at once; one whose
//     process lives keeps its leases for their ttl.
//   - A token is known here only by its hash, and is void from the end of its
//     actor on.
//
// # Key schema
//
//	run/<name>               Run
//	layer/<layer id>         layer record
//	actor/<actor id>         Actor
//	member/<layer id><name>  the actor's id: a name is unique in its layer
//	session/<session id>     session record, owner actor
//
// Ids are 16 raw bytes. The rows of leases and stores are described in
// packages registry and kvstore.
package dispatch
