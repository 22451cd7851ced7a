// Package spotlights shows the guarantees of leasehold as stories, one for
// each.
//
// A [Story] runs against a daemon, a tree of actors, and agents that are real
// MCP clients. The tests run every story in a bubble of fake time, with the
// daemon's own packages on a file system in memory and with net.Pipe in place
// of sockets, so a story takes milliseconds and its times are exact. The
// command runs the same story, with its narration, against a [Machine]: a
// separate daemon process. The story itself is the same in both cases.
//
// Some stories are about processes. These need a Machine in the tests too, and
// dispatch trees of shell scripts that are really killed.
//
// This package may import every other package, and only the command imports it.
package spotlights
