// Package kvstore is one layer's versioned store.
//
// There are only a few types here. A [Store] holds the entries of one layer
// and, under /leases/, shows the layer's [registry.Registry]; a [Txn] is the
// Store inside one transaction, where the rules are. An [Entry] lies under a
// [Path], of which there is exactly one spelling; a [Glob] is a pattern of
// them. The store knows no callers: who may do what is package layer's.
//
// # Contract
//
//   - A Path is canonical or is refused, with the canonical form. So one entry
//     has one name, and one lease has one name ([LeaseName]).
//   - A value is any JSON, kept compact. An entry's version rises with every
//     write, and a path that was deleted and written again never shows a
//     version it had before: a compare-and-set by version cannot be fooled.
//   - A write whose expected version is not the one there changes nothing and
//     is a [VersionError] with the version that is.
//   - A write over one of the [Limits] changes nothing and is a
//     [registry.LimitError] that names it. One that makes a store smaller is
//     never refused.
//   - [Store.Wait] misses no write, and polls nothing.
//   - [Store.List] holds up nobody, and has a budget: what a long listing does
//     not reach is for the next, which goes on from [Listing.Next].
//   - A write that is sent again, under the name of its call, is answered as
//     before: see package call.
//   - Entries outlive sessions, and restarts. What removes them is a Delete,
//     [Txn.DropPeer] or [Txn.Drop].
//
// # Key schema
//
//	kv/<layer><path>      Entry    e.g. kv/6ba7…/shared/plan; what a Wait watches
//	~kv/<layer><path>     the entry's value, if it has 4 KiB or more
//	kvuse/<layer>         Usage    how many entries and bytes, kept with every write
//	kvver/<layer><space>  the last version given in /ref, /shared or /peer/<name>
//
// <layer> is its id in text, which has one length, so no layer's keys begin
// with another's. The row of a space stays when its entries go, for as long as
// the layer lasts: it is what keeps old versions from coming back.
//
// # The choice not taken
//
// One counter of versions for the whole layer would be one row less. But every
// member reads versions under /shared/, and would read from their gaps how
// much is written where it may read nothing. A counter to each space keeps the
// promise of the other choice, a counter to each path with a tombstone for the
// deleted, at a cost that does not grow with what was deleted.
package kvstore
