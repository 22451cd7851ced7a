// Package work has the orders of launched actors and their outcomes.
//
// It contains what package dispatch needs to know about processes. It refers to
// actors, leads and runs only by their ids and names, calls nothing in package
// dispatch, and starts no process. It has three parts:
//
//   - A [Work] is the record of one launched actor: its status, its budget, its
//     process. The functions over an [engine.Tx] are its rules: [Give],
//     [HandOut], [Started], [Halt], [Conclude]. Package dispatch calls them in
//     the transaction that changes the tree, so that a work is final if and only
//     if its actor has ended.
//   - A [Dispatched] is the record of one run whose actors are launched.
//   - [Launchers] is the in-memory knowledge of this daemon: who launches each
//     run, which sessions are kept open for launched processes, and which actor
//     a connecting process belongs to ([Launchers.Kin]).
//
// # The states of a work
//
//	          Give                 Started
//	(nothing) ─────▶ pending ───────────────────▶ running
//	                 │  ▲                            │
//	stopped before   │  │ Give, in a later life      │ Conclude
//	its order was    │  │ of the run                 │
//	handed out, or   │  │                            ▼
//	Conclude         ├──┼─▶ cancelled, failed, timed_out, spawn_failed ─┐
//	                 │  │   succeeded: never started again              │
//	                 └──┼─▶ lost: its launcher was gone, and so was it  │
//	                    └───────────────────────────────────────────────┘
//
// # Key schema
//
//	dispatched/<run name>          Dispatched
//	work/<actor id>                Work
//	unfinished/<run id><actor id>  what remains to be done for a work that is not final
//	~work/order/<actor id>         Order, until it has ended
//	~work/result/<actor id>        JSON, what it reported
//	~work/plan/<run name>          what the dispatcher tells the launchers of other machines
//
// Ids are 16 raw bytes.
package work
