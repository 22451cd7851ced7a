// Package dispatch implements runs: the tree of layers and actors, the sessions
// through which they act, the leases of the run, and the work of actors that
// are launched.
//
// This package serves the daemon and is not public: programs use package
// client of this module.
//
// A run is one tree and has a name. A lead (the root, or a sub-lead at any
// depth) has a layer, which consists of the lead and the actors that it spawned
// directly. Each layer has a store and the leases in that store. The run has
// one more [registry.Registry] for what all of its actors contend for. An
// [Actor] is a party in the tree. It acts through a [Session], which is one
// live connection or process.
//
// A run may have a launcher: an operator's session that starts and stops the
// processes of the run's actors. The order that such an actor receives, and the
// outcome of that order, are a [work.Work]. Package work, below this one, has
// the rules for it. This package applies those rules together with its own in
// one transaction, and starts no process.
//
// # Contract
//
//   - A session's actor follows from the credentials it connected with, never
//     from an argument. What the session may reach follows from the actor's place.
//   - A connection from a process that descends from a launched one belongs to
//     that actor, whatever credentials it presents. See [State.Connect], and
//     [work.Launchers.Kin] for the limits of this rule.
//   - [Session.Close] is the only way in which a connection gives back what it
//     held: every lease in every scope and every place in line. The end of an
//     actor ends its sessions by the same rule and, for a lead, ends its whole
//     sub-tree. The exception is an actor that is launched below it: that actor
//     keeps what it holds until its own process is gone.
//   - A restart of the daemon ends no session. A client resumes its session with
//     its handle. A session whose process is gone by then ends at once. A session
//     whose process lives keeps its leases for their ttl. If the client is on
//     another machine, so that nobody sees its process, its session ends when it
//     has not come back for [Options.DetachedGrace].
//   - Only the hash of a token is stored. The token is void once its actor ends.
//   - A refused spawn has changed nothing. A spawn that was answered is durable:
//     after any crash it leads to a process, or to a status that says why not.
//   - The total of what a lead gives to its children and what they spend never
//     exceeds what the lead has, except for what an agent spends beyond its
//     budget. See [work.Purse].
//
// # Launched actors
//
// A work becomes final in the same transaction in which its actor ends, its
// sessions end and its token becomes void. The launcher reports an exit only
// when everything that the process had started is gone too. While the launcher
// is away, nothing can be spawned. The daemon finds processes that end in that
// time by polling.
//
// As soon as its order is handed out, an actor has a session that needs no
// connection. The process receives the handle of that session, so a script that
// takes a lease in one call still holds it in the next.
//
// # Key schema
//
//	run/<name>                     Run
//	dispatched/<name>              work.Dispatched, if it has a launcher
//	layer/<layer id>               layer record
//	actor/<actor id>               Actor
//	member/<layer id><name>        the actor's id: a name is unique in its layer; and the id of the layer it leads, or zero
//	session/<session id>           session record, owner actor
//	access/<id>                    Access: the token of an operator or reader
//	ending/, closed/, former/, retire/  what ends, or is kept for a while: see ending.go
//	format                         the number Format
//
// Ids are 16 raw bytes. The rows of leases and stores are described in packages
// registry and kvstore, and those of works in package work.
//
// # Versions
//
// From 0.1.0 on, a state opens in the version that wrote it and in every later
// one. There is no separate migration: a version reads the rows of all earlier
// versions and writes its own. So:
//
//   - A row of package record begins with the number of its format. A change of
//     its fields raises that number, and each earlier format stays readable; a
//     field that the format did not have is zero. Files next to the rows, such as
//     the engine's log, have such numbers too.
//   - A JSON row may only gain fields. The zero value of a new field means what
//     its absence meant before. A field whose meaning would change gets a new
//     name.
//   - If a row moves to another key, Open moves it, and can continue after a
//     crash in the middle.
//   - Each of these changes raises [Format]. An earlier version then refuses the
//     state. Otherwise it would report the rows as damaged, or drop the fields
//     that it does not know.
//
// testdata/states has two states of each version, one stopped and one killed.
// formats.txt has the numbers of the formats. Tests open the states, and fail
// if a number has changed while Format has not.
//
// # The choice not taken
//
// The daemon could start the processes itself. But then an agent that stopped
// or killed the daemon would take all the others with it; the daemon would need
// the environment of each user; and a restart would orphan the tree. A launcher
// runs in the user's own terminal, and the run ends with it.
package dispatch
