// Package registry is the lease core: who holds what, until when, and who is
// next.
//
// There are only a few types here. A [Core] is the rules over one engine. A
// [Registry] is the Core bound to one scope: "run:<id>" for what a whole run
// contends for, "layer:<id>" for one layer's /leases/*. A [Lease] is held by a
// [Holder], which is a session: the actor and its path are for those who read
// who is in their way. Whoever is refused gets a [HeldError]; whoever lost a
// lease gets a [LostError].
//
// # Contract
//
//   - At most one session holds a key of a scope. Each grant carries a token
//     greater than any this state ever issued; renewal and re-entry keep it.
//   - A lease is kept at least its ttl from the last grant or renewal, and may
//     be taken only when now > deadline. A restart gives each lease one full
//     ttl more, so it never cuts one short.
//   - A deadline is only ever moved later.
//   - Release, expiry and the end of a session hand over, in the transaction
//     that frees the key, to the first who waits and is still there. Nobody
//     overtakes: a key is free only while nobody waits for it.
//   - Everything a session holds and waits for goes with it, in the
//     transaction that ends it ([Core.EndSession]).
//   - A refusal changes nothing and says what is in the way now.
//
// # A place in the line
//
//	          acquire, held            freed, first in line, call alive
//	(none) ───────────────▶ waiting ───────────────────────────────────▶ holds
//	                         │   ▲
//	          wait_secs over │   │ acquire with the ticket
//	                         ▼   │
//	                        parked ──── 30 s ───▶ (none)
//
// Whoever is parked has had an answer and is not asking: a key that becomes
// free passes over them, for nothing may stand free while somebody waits, but
// they keep their place before all who came later. Reserving the key for them
// was the choice not taken: it stops everyone for as long as a model thinks.
//
// # Key schema
//
//	lease/<scope>␀<key>            Lease       owner session, due at its next attention
//	leaseid/<lease id>             its row key memory only
//	leases/<scope>                 how many    memory only
//	wait/<scope>␀<key>␀<seq>       Waiter      memory only, owner session, due when parked
//	ticket/<actor><ticket>         its row key memory only, owner session; what a waiting call watches
//	request/<session><request id>  the grant   owner session, due some time after the lease ended
//	lost/<actor><lease id>         what became of it (without an id: and its token, until it is told), due when it may be forgotten
//	news/<session>                 stands while the session has losses to be told of: the last's token, and how many without an id are kept; owner session
//	place                          the last place given in any line, memory only
//	token                          the last one issued, and how many are reserved on disk
//	uptime                         how long the state has been open, due every minute while there are leases
//
// A lease's deadline is when its row is due, or some time after, which its value
// tells: so a renewal changes the row's due time alone. It only Touches the row
// and costs no disk write. What a restart needs of a deadline is the ttl. The
// restart itself puts all leases off, some in each transaction, and writes
// nothing either.
//
// # Long leases
//
// A state that restarts often would so keep a day's lease for ever. So a lease of
// more than five minutes also has its end written down, as a time on a clock that
// goes only while the state is open, the uptime, of which one row is written each
// minute. After a restart it has what is left until that end, at most its ttl. Its
// renewal writes a new end if that is more than five minutes later than the one
// that is stored, and the restart adds those five: so none is cut short, and one
// that nobody renews is kept by a restart for no more than the time since the last
// minute was written, and by the first of them for five minutes.
//
// What was left of each lease, written every few minutes, was the choice not
// taken: it costs a write for all that lives and not for what changes, 3 300 a
// second with a million claims of an hour, and none is needed for those that
// nobody renews.
package registry
