// Package event records what happens in a run, in order: grants, hand-overs and
// ends of leases, refused writes, sessions and actors that began and ended, and
// state changes of tasks.
//
// The rules record an [Event] in the transaction that it describes ([Record]).
// So an answer and its event become durable together, and an event costs one
// row in a commit that is made anyway. A refusal that changes nothing else has
// its event in a separate commit, which may come after later events.
//
// # Contract
//
//   - Each event has a revision. Revisions rise with the order of the
//     transactions, through restarts and the loss of a log. They have gaps.
//   - [Read] returns the events of a run after a revision. All later events are
//     there or will follow: no event appears later with a smaller revision.
//   - A run keeps only its latest events, see [Retention]. A reader that may have
//     missed deleted events gets a [CompactedError].
//   - An event never changes.
//
// # Numbers
//
// Fencing tokens and the numbers of places in lines come from [Next]. Revisions
// have a separate counter, so that tokens stay small numbers that people can
// read. Both share one high-water mark, which is kept apart from the log,
// because neither counter may issue a number twice.
//
// # Key schema
//
//	~event/<run id><revision>  an Event
//	compacted/<run id>         the revision up to which the run's events are deleted
//	!mark/token                the greatest token or revision that may have been issued
//	number                     the last token and revision, and the mark; in memory only. Readers that wait for events watch it
//
// # The choice not taken
//
// Counting the events of each run in a row would need another write for each
// event. Instead, a [Keeper] reads each event once after it was written, and
// counts it. An index by key would make every event two rows. Instead, the
// history of a key is read from all events of its run, whose number is limited.
package event
