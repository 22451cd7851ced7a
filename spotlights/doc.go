// Package spotlights tells the guarantees of leasehold as stories, one each.
//
// A [Story] is told on a stage: a daemon, a tree of actors, and agents that are
// real MCP clients of it. The tests tell every story in a bubble of fake time,
// with the daemon's own packages over a file system in memory and net.Pipe for
// sockets, so that it takes milliseconds and its times are exact. The command
// tells the same story, narrated, to a [Machine]: a daemon process of its own.
// The story cannot tell which.
//
// Some stories are about processes: those need a Machine in the tests too, and
// dispatch trees of shell scripts that are really killed.
//
// This package sees everything, and only the command sees it.
package spotlights
