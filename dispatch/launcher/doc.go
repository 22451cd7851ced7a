// Package launcher is the dispatcher: it runs the processes of one run, and
// leaves none behind.
//
// The daemon has the state of a run: who is in the tree, what each actor was
// told to do, and with what result. It starts no process. A [Launcher] asks it
// what to start and what to stop, does that, and reports. For each actor the
// order is:
//
//	order ──▶ prepared ──▶ running ──▶ its tree gone ──▶ reported
//	   │          │            │ exit, timeout, stop
//	   │          └─ spawn_failed ──────────────────────────▶ │
//	   └─ nothing of it is left, whatever happens ────────────┘
//
// # Contract
//
//   - An actor is reported as ended only when no process of its tree is left, so
//     what it held is never handed on while a part of it still runs.
//   - Leads end after the actors below them.
//   - When the dispatcher ends, in whatever way, every process that it started is
//     ended: by a watchdog, which the dispatcher holds by a pipe, or, if that was
//     killed too, by the next start.
//   - The daemon may restart during a run. Agents and dispatcher connect again.
//   - [Options.Interrupts] describes the effect of an interrupt.
//
// # Run directory
//
//	manifest.toml          as it was read
//	run.json               what a resume needs: see [RunFile]
//	events.jsonl           an [Event] a line: those of the run, each once and in order, and those of the dispatch
//	summary.json           the [Summary], when the run is over
//	actors/<path>/         0700: stdout.log, stderr.log (stdout-2.log … in later
//	                       lives of a resumed run), each with an .old file that
//	                       has its earlier content after it was full; files/ of its client
package launcher
