// Package process starts the processes of agents and ends them, with all they
// have started, so that nothing of them is left behind.
//
// [Start] runs a program in a session of its own, as the first of a tree.
// [Process.Stop] asks every process of that tree to end and kills what has not
// ended after a grace; [End] does the same for all processes that carry a mark,
// which is one variable of their environment, whoever started them. Both return
// once a look at the whole machine, repeated, finds nothing of it. [StartWatchdog]
// starts a process that calls End when its starter dies without a word.
// [MakeWorktree] gives an agent a git worktree to work in.
//
// What belongs to a tree is whatever can be found from it:
//
//	the mark        it is in the environment of the process, which children
//	                inherit through every fork, setsid and exec
//	the descent     its parent belongs
//	session, group  the leader of it belongs, or did when it was last seen
//	memory          it belonged when somebody looked before
//	adoption        it lost its parent, and a process that called [Adopt] got it
//
// So a child may drop its environment, leave its session and lose its parent, and
// is found all the same, also when it does all three before anyone has looked: on
// Linux the dispatcher adopts it (PR_SET_CHILD_SUBREAPER). Nobody can say of which
// actor such a process is, so it ends with the run and not with the actor. If the
// dispatcher is killed, the watchdog ends those that it was told of; what escaped
// in the last 50 ms before that is lost. A cgroup would leave no gap, but needs
// rights that a user does not have.
//
// What is never touched: the caller and its ancestors; the processes of other
// users; a pid that has become another process since it was looked at. On Linux
// a signal goes through a pidfd, opened before the start time is compared, so
// that there is no instant between the look and the signal; elsewhere, and on
// kernels without it, there is one of a few microseconds.
//
// On macOS the environment of the system's own binaries is hidden: they are
// found by descent, session and group.
package process
