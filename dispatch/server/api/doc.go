// Package api is the HTTP API for programs: which route calls which tool, how a
// request becomes the arguments of the call, and how the reply becomes a
// status, a body and headers. It does not handle connections or sessions;
// package server does.
//
// A route is a tool with a method and a path. So programs and models get the
// same answers, by the same rules. A new argument of a tool is also an argument
// of the API, and in its description ([Document]).
//
// # Shapes
//
// Arguments come from three places: names in braces are parts of the path, the
// others are in the query for GET and DELETE, and in a JSON object, the body,
// for other methods. An argument in two places is refused, and so is an unknown
// one. The answer is the tool's object. A refusal is application/problem+json
// (RFC 9457), whose code and other members are those of the tool's refusal.
//
//	201  something was granted or created
//	200  done, or found
//	202  WAIT_TIMEOUT: still held; the caller has a place in the line, and its ticket
//	204  there is nothing, for example no task to claim
//	400  INVALID_ARGUMENT     401  UNAUTHENTICATED    403  FORBIDDEN
//	404  NOT_FOUND            409  LEASE_HELD, NOT_HOLDER, DEADLOCK, DRAINING, REQUEST_ID_REUSED,
//	                               or STALE_TOKEN for a finished task
//	410  LEASE_LOST, COMPACTED, or STALE_TOKEN for a lost claim
//	412  VERSION_MISMATCH, or STALE_TOKEN for a lease that a write requires
//	429  LIMIT                503  UNAVAILABLE; both with Retry-After
//
// # Headers
//
//	Authorization      Bearer, the token of an actor, operator or reader
//	Leasehold-Session  the session of the call; what the call is granted ends with it
//	Leasehold-Messages leave: a program reads the answer. Its notices are of its own session only:
//	                   messages are left for the inbox, and with offers and what an earlier
//	                   session has lost for the model of the same actor
//	Idempotency-Key    of a POST, PUT or DELETE: repeated with the same key and session, it has
//	                   one effect and the same answer
//	If-Match           the version that an entry of a store must have
//	If-None-Match      *: there must be no entry
//	ETag               the version of the entry in the answer
package api
