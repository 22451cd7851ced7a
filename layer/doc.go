// Package layer says who may do what in one layer: a lead, and those it spawned
// directly.
//
// A [Layer] is a layer's [kvstore.Store] as its members may use it. A [View]
// is the Layer as one [Member] sees it; all that a caller may do goes through
// a View, and each of its methods asks the one table in policy.go before it
// reads anything. The store below knows no callers, and nothing above decides
// about access.
//
// # Contract
//
//   - What the table does not allow is a [ForbiddenError], and changes nothing.
//   - A member learns nothing of another's /peer: a refusal is the same whether
//     or not what was asked for is there, a listing does not count what it
//     hides, and no name is given for an id. What it shares with the others is
//     the room in the layer's store: see [kvstore.Limits].
//   - /peer/self and /peer/<id> are the same entries as /peer/<name>, resolved
//     in the transaction that uses them and before the table is asked. Answers
//     carry the name. In a glob they are resolved where they are spelled out
//     below /peer; a pattern in their place matches names.
//   - A view that is [Member.ReadOnly] reads what the lead reads, and writes
//     nothing.
//
// # The choice not taken
//
// Rules as globs with verbs, evaluated in order, could be set by whoever runs
// Leasehold. They would have to be read to be believed, and what a tree may
// rely on would differ from run to run. The table has twelve cells, and a test
// that spells out each.
package layer
