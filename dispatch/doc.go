// Package dispatch is the run: its tree of layers and actors, the sessions
// through which they act, the leases that span it, and the work of those
// actors that are launched.
//
// A run is one tree, by name. A lead (the root, or a sub-lead at any depth)
// has a layer: itself and those it spawned directly. Each layer has a store,
// and with it the leases of that layer; the run has one [registry.Registry]
// more, for what all of it contends for. An [Actor] is a party in that tree
// and acts through a [Session], one live connection or process.
//
// A run may have a launcher: an operator's session that starts and stops the
// processes of its actors. What such an actor is told to do, and what came of
// it, is a [work.Work]: package work, below this one, has those rules. This
// package joins them to the tree, in one transaction each, and starts no process.
//
// # Contract
//
//   - A session knows its actor by the credentials it connected with, never by
//     an argument. What it may reach follows from the actor's place.
//   - A connection whose process comes from a launched one is that actor's,
//     whatever it says: see [State.Connect] and [work.Launchers.Kin], which has the limits.
//   - [Session.Close] is the only way by which a connection gives back what it
//     held: every lease in every scope and every place in line, in one
//     transaction. The end of an actor ends its sessions, and for a lead its
//     whole sub-tree, by the same rule in one transaction; but whoever is
//     launched below it keeps what it holds until its own process is gone.
//   - A restart of the daemon ends no session. Who was connected resumes with
//     its handle. One whose process is gone by then ends at once; one whose
//     process lives keeps its leases for their ttl.
//   - A token is known here only by its hash, and is void from the end of its
//     actor on.
//   - A spawn that is refused has changed nothing. One that is answered is
//     ordered, whatever crashes: it comes to a process or to a status that
//     says why not.
//   - What a lead gives to its children and what they spend is never more
//     than it has, but for what an agent spends beyond its budget: see [work.Purse].
//
// # Launched actors
//
// A work is final with its actor's end, in one transaction: its sessions end
// and its token is void. Its launcher reports an exit when everything that the
// process had started is gone too. While the launcher is away nothing is
// spawned; processes that end meanwhile are found by looking.
//
// From the moment its order is handed out an actor has a session that needs no
// connection, for its process, which gets the handle. So what a script takes
// by one call is there for its next.
//
// # Key schema
//
//	run/<name>                     Run
//	dispatched/<name>              work.Dispatched, if it has a launcher
//	layer/<layer id>               layer record
//	actor/<actor id>               Actor
//	member/<layer id><name>        the actor's id: a name is unique in its layer
//	session/<session id>           session record, owner actor
//	access/<id>                    Access: the token of an operator or reader
//	format                         the number Format
//
// Ids are 16 raw bytes. The rows of leases and stores are described in
// packages registry and kvstore, those of works in package work.
//
// # Versions
//
// A state opens in the version that wrote it and in every later one, from 0.1.0 on.
// There is no migration: a version reads the rows of all earlier ones where it finds
// them, and writes its own. So:
//
//   - A row of package record begins with the number of its format. Whoever changes
//     its fields raises that number, and goes on reading each earlier one; a field
//     that it did not have is zero. What is on disk next to the rows, such as the
//     engine's log, has such numbers too.
//   - A row of JSON only gets more fields. The zero of a new one means what was so
//     before. A field whose meaning would change gets another name.
//   - A row that moves to another key is moved by Open, in a transaction that a crash
//     may have cut off.
//   - Each of these raises [Format]. An earlier version then refuses the state, where
//     else it would call the rows damaged, or drop the fields that it does not know.
//
// testdata/states has a state of each version, stopped and killed, and formats.txt the
// numbers. Tests open the states, and fail when a number has changed and Format has not.
//
// # The choice not taken
//
// The daemon could start the processes itself. It would then be what dies with
// them, and what an agent's shell started by accident; it would need every
// user's environment, and a restart would orphan the tree. A launcher is in the
// user's own terminal, and its end is the run's.
package dispatch
