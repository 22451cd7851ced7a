// Package process starts the processes of agents and ends them, together with
// everything they have started, so that nothing is left running.
//
// [Start] runs a program in a session of its own, as the root of a tree of
// processes. [Process.Stop] asks every process of that tree to end, and kills
// what has not ended after a grace period. [End] does the same for all
// processes with a mark, which is one variable of their environment, whoever
// started them. Both return once repeated scans of all processes find no
// process of the tree. [StartWatchdog] starts a process that calls End if its
// starter dies. [MakeWorktree] gives an agent a git worktree to work in.
//
// A process belongs to a tree if one of these holds:
//
//	the mark        it is in the environment of the process, which children
//	                inherit through every fork, setsid and exec
//	the descent     its parent belongs to the tree
//	session, group  the leader belongs to the tree, or did when last seen
//	memory          the process belonged to the tree in an earlier scan
//	adoption        it lost its parent and was adopted by a process that
//	                called [Adopt]
//
// So a child that drops its environment, leaves its session and loses its
// parent is still found, even if it does all three before the first scan: on
// Linux the dispatcher adopts it (PR_SET_CHILD_SUBREAPER). The actor of such a
// process is unknown, so the process ends with the run and not with the actor.
// If the dispatcher is killed, the watchdog ends the adopted processes that it
// was told of; those that escaped in the last second before that are missed. A
// cgroup would leave no gap, but needs rights that a user does not have.
//
// These processes are never signalled: the caller and its ancestors; the
// processes of other users; a process that has got the pid of another one since
// the scan. On Linux a signal goes through a pidfd that is opened before the
// start time is compared, so no other process can receive it. Elsewhere, and on
// kernels without pidfds, there is a window of a few microseconds.
//
// On macOS the environment of the system's own binaries is hidden. Their
// processes are found by descent, session and group.
package process
