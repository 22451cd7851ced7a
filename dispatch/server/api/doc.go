// Package api is the HTTP API for programs: which route calls which tool, how a
// request becomes the arguments of the call, and how the reply becomes a status, a
// body and headers. It knows nothing of connections and sessions; package server
// has those.
//
// A route is a tool behind a method and a path. So a program and a model that ask the
// same get the same, by the same rules, and an argument that a tool gets the API has,
// too, in its description ([Document]) as well.
//
// # Shapes
//
// Arguments come from three places: names in braces are parts of the path, a GET or
// DELETE has the others in its query, and any other method in a JSON object, its
// body. An argument in two places is refused, and so is an unknown one. The answer is
// the tool's object. A refusal is application/problem+json of RFC 9457, whose code,
// and what comes with it, are those of the tool's refusals.
//
//	201  something was granted or made
//	200  done, or here it is
//	202  LEASE_HELD after a wait: the caller has a place in the line, and its ticket
//	204  there is nothing, as of a claim without a task
//	400  INVALID_ARGUMENT     401  UNAUTHENTICATED    403  FORBIDDEN
//	404  NOT_FOUND            409  LEASE_HELD, NOT_HOLDER, DEADLOCK, DRAINING, REQUEST_ID_REUSED,
//	                               or STALE_TOKEN for a task that is finished
//	410  LEASE_LOST, COMPACTED, or STALE_TOKEN for a claim that is lost
//	412  VERSION_MISMATCH, or STALE_TOKEN for a lease that a write needs
//	429  LIMIT                503  UNAVAILABLE; both with Retry-After
//
// # Headers
//
//	Authorization      Bearer, the token of an actor
//	Leasehold-Session  the session that the call is for; what it is granted ends with it
//	Idempotency-Key    of a POST, PUT or DELETE: sent again with the same key and session, it has
//	                   one effect, and the same answer
//	If-Match           the version that an entry of a store must have
//	If-None-Match      *: there must be no entry
//	ETag               the version of the entry in the answer
package api
