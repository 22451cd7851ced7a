// Package server serves the clients of the daemon: MCP on the socket and over HTTP,
// the HTTP API for programs, and the web page. It reads a request, calls a tool of
// package tools as the caller's [dispatch.Session], and writes the reply.
//
// A client of the socket is gone when its connection ends. Over HTTP only a broken
// stream or call says so, or a long silence: see presence. A call whose client is
// gone or has cancelled it is undone. Servers that share a database pass a client on
// to the server that leads its run: see relay.go.
package server
