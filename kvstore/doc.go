// Package kvstore implements the versioned store of one layer.
//
// This package serves the daemon and is not public: programs use package
// client of this module.
//
// It has few types. A [Store] holds the entries of one layer and shows the
// layer's [registry.Registry] under /leases/. A [Txn] is the Store within one
// transaction, and has the rules. An [Entry] is stored under a [Path], of which
// there is exactly one spelling. A [Glob] is a pattern of paths. The store does
// not know who calls it: access rules are in package layer.
//
// # Contract
//
//   - A Path is canonical, or it is refused with the canonical form. So each
//     entry has exactly one name, and so does each lease ([LeaseName]).
//   - A value is any JSON, stored compactly. The version of an entry rises with
//     each write. A path that was deleted and written again never gets a version
//     that it had before, so a compare-and-set by version cannot be fooled.
//   - A write that expects another version than the current one changes nothing
//     and returns a [VersionError] with the current version.
//   - A write that would exceed one of the [Limits] changes nothing and returns a
//     [registry.LimitError] that names the limit. A write that makes a store
//     smaller is never refused.
//   - [Store.Wait] misses no write and does not poll.
//   - [Txn.List] is for a snapshot, so it blocks no other call, and has a budget. A
//     long listing is continued by another call from [Listing.Next].
//   - A write that is repeated under the name of its call returns the same
//     answer as before: see package call.
//   - Entries outlive sessions and restarts. Only Delete, [Txn.DropPeer] and
//     [Txn.Drop] remove them.
//
// # Key schema
//
//	kv/<layer><path>      Entry    e.g. kv/6ba7…/shared/plan; Wait watches this row
//	~kv/<layer><path>     the entry's value, if it has 4 KiB or more
//	kvuse/<layer>         Usage    number of entries and bytes, updated with each write
//	kvver/<layer><space>  the last version issued in /ref, /shared or /peer/<name>
//
// <layer> is the id of the layer as text of a fixed length, so no layer's keys
// are a prefix of another's. The kvver row of a space is kept as long as the
// layer exists, even without entries, so that versions are never issued again.
//
// # The choice not taken
//
// One version counter for the whole layer would save rows. But every member
// reads versions under /shared/, and the gaps would reveal how much is written
// in places that the member may not read. A counter for each path would need a
// tombstone for each deleted one. A counter for each space keeps the same
// promise, at a cost that does not grow with the number of deleted paths.
package kvstore
