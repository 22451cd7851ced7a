// Package metrics counts what happens in a state, for Prometheus.
//
// Its only source is an [engine.Observer]. The rules write an event for
// everything that happens, and the engine reports each event as it is written.
// So nothing is counted that did not happen, and the rules know nothing about
// metrics. Amounts follow from the rows that are added and removed. While
// nothing changes, metrics cost nothing, and a scrape reads a bounded number of
// rows.
//
// # Labels
//
// No label contains a key, an actor, a session or a run. The only label that
// users name is queue. The first [MaxQueues] names with tasks get their own
// series and keep them until the daemon ends; all others share [OtherQueues].
// Queues with the same name in several runs are counted together.
package metrics
