// Package event is what happened in a run, in order: grants, hand-overs and ends
// of leases, refused writes, sessions and actors that began and ended, and the
// moves of tasks.
//
// The rules record an [Event] in the transaction that does what it tells of
// ([Record]). So an answer and its event are durable together, and an event costs
// one row of a commit that is made anyway. A refusal that changes nothing else has
// its event in a commit of its own, which may come behind what happened meanwhile.
//
// # Contract
//
//   - Each event has a revision. It rises with the order of the transactions,
//     through restarts and the loss of a log. Revisions are not dense.
//   - [Read] gives the events of a run from behind a revision. All that follow are
//     there or will come: none comes later with a smaller revision.
//   - A run keeps its last events only, see [Retention]. Whoever asks from behind a
//     revision and could miss some that are forgotten is told so, with a
//     [CompactedError].
//   - An event never changes.
//
// # Numbers
//
// Fencing tokens, and the numbers of places in lines, come from [Next], and revisions
// from a count of their own: tokens stay small numbers that people can read. Both
// share one high-water mark, which is kept apart from the log, as no number of
// either may come twice.
//
// # Key schema
//
//	~event/<run id><revision>  an Event
//	compacted/<run id>         the revision up to which the run's events are forgotten
//	!mark/token                the greatest token or revision that may have been given
//	number                     the last token and revision, and the mark; memory only. Whoever waits for events watches it
//
// # The choice not taken
//
// A count of each run's events, kept with them, needs another write with every
// event. A [Keeper] reads each event once, after it was written, and counts that.
// An index by key makes every event two rows; a history of one key reads the
// events of its run instead, of which there are so many and no more.
package event
