// Package simulation runs a whole daemon and its clients in one bubble of fake
// time. A seed decides which faults happen, and the test checks what the clients
// were told. The package contains only tests.
//
// # What runs
//
// The daemon is what `leasehold serve` runs: both transports, sessions, State,
// and the engine with its store on a file system in memory that can crash. Its
// connections are also in memory, and have buffers like those of the system. The
// clients speak MCP without a library, so that they can do what a library would not:
// send a call twice, cancel it at any instant, stop reading, or open a connection per
// request.
//
// # What a seed decides
//
//   - what each client asks for, in which order, and how long it thinks;
//   - for which of its sub-agents it asks, and when a sub-agent ends;
//   - which calls are cancelled, which lose their connection, and when;
//   - when a client is killed, and when the daemon is. After kill -9 the file system
//     has all that was written. After a power cut it has what was synced, and the
//     clients of the socket are gone as well;
//   - how the wall clock is set and when the machine sleeps;
//   - when the disk is full or nearly full, and when it has room again;
//   - which clients over HTTP hold a stream;
//   - which clients stop reading while more arrives than a connection can buffer,
//     and which ask for as much as they may.
//
// The seed does not decide the order in which goroutines of one instant run, the order
// of a map, or the ids that the daemon draws. So no two clients do anything at the same
// instant, and half of the seeds take the same course in every run. A failure prints
// how to run its seed again many times.
//
// # What is checked
//
//   - Leases and claims are linearizable registers (porcupine). A lease may
//     become free only by a release, by the end of its session, or once the
//     holder's own deadline has passed: ttl after it sent its request.
//   - A call has one effect: the tasks and versions that exist are those that
//     were acknowledged, and at most those of calls that had no answer.
//   - A cancelled call leaves nothing behind: a session has no lease that its client
//     does not know of, and in the end no task is claimed.
//   - Lines are served in order, and a party has one place in each.
//   - Every loss is reported in an answer to the session, or to the actor's next one.
//   - No client delays another: a call is answered within a few syncs of the end of its
//     wait, whatever the others do, and no answer is large.
//   - A full disk refuses what grows, and nothing else; the daemon outlives it.
//   - A session ends only for a reason that its client gave.
//   - The daemon's own checks of its state pass after each restart.
//
// # Many machines
//
// TestServers connects the same clients to three real servers on a real PostgreSQL, in
// real time, and checks what they were told with the same model. Servers are killed,
// stopped and paused, and there is a proxy between any two parties. The seed decides
// less there. TestServers finds faults between processes: which server knows that a
// client has gone, and which server has lost the lead and does not know it yet.
//
// # What it finds
//
// It has found faults in the undo of a cancelled call, in the row of a call's answer, in
// the clocks, in the places of parties, in the losses at the end of a session, in HTTP
// sessions after a restart, and in answers that are unread when their connection ends.
package simulation
