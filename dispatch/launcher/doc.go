// Package launcher is the dispatcher: it runs the processes of one run, and
// leaves none behind.
//
// The daemon holds the truth of a run: who is in the tree, what each was told
// to do and what came of it. It starts no process. A [Launcher] asks it what
// to start and what to stop, does it, and reports: one order at a time, in
// this order.
//
//	order ──▶ prepared ──▶ running ──▶ its tree gone ──▶ reported
//	   │          │            │ exit, timeout, stop
//	   │          └─ spawn_failed ──────────────────────────▶ │
//	   └─ nothing of it is left, whatever happens ────────────┘
//
// # Contract
//
//   - An actor is reported as ended only when no process of its tree is left:
//     what it held is never handed on while something of it still runs.
//   - Leads end after those below them.
//   - The end of the dispatcher, however it comes, is the end of every process
//     it started: a watchdog, which the dispatcher holds by a pipe, ends them,
//     and if that was killed too, the next start does.
//   - The daemon may restart meanwhile. Agents and dispatcher connect again.
//   - What an interrupt asks for is in [Options.Interrupts].
//
// # Run directory
//
//	manifest.toml          as it was read
//	run.json               what a resume needs: see [RunFile]
//	events.jsonl           an [Event] a line: those of the run, each once and in order, and the dispatch's own
//	summary.json           the [Summary], once the run is over
//	actors/<path>/         0700: stdout.log, stderr.log (stdout-2.log … in later
//	                       lives of a run that was resumed), each with an .old of
//	                       what it held before when it is full; files/ of its client
package launcher
