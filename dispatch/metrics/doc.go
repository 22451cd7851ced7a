// Package metrics counts what happens in a state, for Prometheus.
//
// It has one source: an [engine.Observer]. The rules write an event with all that
// happens, and the engine tells of each as it is written; so nothing is counted that did
// not happen, and the rules know of no metric. How much there is of something follows
// from the rows that come and go. What does not change costs nothing, and a scrape
// reads no more than a bounded number of rows.
//
// # Labels
//
// No label has a key, an actor, a session or a run. Only queue is named by users. The
// first [MaxQueues] names that have tasks get series of their own, and keep them until
// the daemon ends; all others are together under [OtherQueues]. Queues of one name in
// several runs are one.
package metrics
