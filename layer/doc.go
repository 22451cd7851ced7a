// Package layer decides who may do what in one layer, which consists of a lead
// and the actors that it spawned directly.
//
// This package serves the daemon and is not public: programs use package
// client of this module.
//
// A [Layer] is the [kvstore.Store] of a layer, as its members may use it. A
// [View] is the Layer for one [Member]. Callers use only a View, each of whose
// methods consults the table in policy.go before it reads anything. The store
// below does not know its callers, and no package above decides about access.
//
// # Contract
//
//   - What the table does not allow returns a [ForbiddenError] and changes
//     nothing.
//   - A member learns nothing about the /peer of another member: a refusal is
//     the same whether or not the entry exists, a listing does not count what it
//     hides, and ids are not resolved to names. Members do share the space of the
//     layer's store: see [kvstore.Limits].
//   - /peer/self and /peer/<id> are the same entries as /peer/<name>. They are
//     resolved in the transaction that uses them, before the table is consulted.
//     Answers contain the name. In a glob they are resolved only if the segment
//     has no wildcard; a wildcard matches names.
//   - A view that is [Member.ReadOnly] reads what the lead reads, and writes
//     nothing.
//
// # The choice not taken
//
// Access rules could be an ordered list of globs and verbs that an operator can
// change. But then an agent would have to read them to know what it may rely
// on, and that would differ from run to run. The table has four rows, and a
// test has every cell.
package layer
