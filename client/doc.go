// Package client is for programs: leases that renew themselves, workers, and jobs that
// run on one replica.
//
//	c, err := client.Open(ctx, client.Options{Servers: []string{"unix:///run/user/1000/leasehold/leasehold.sock"}, Token: token})
//	lease, err := c.Acquire(ctx, "deploy", client.LeaseOptions{})
//	err = deploy(lease.Context(), lease.Token())
//	err = lease.Release(ctx)
//
// It is the public package of this module. The others serve the daemon, change without
// notice, and do nothing by themselves: what falls due in a registry or a queue is done
// by who tends it, which is the daemon.
//
// # Contract
//
//   - A lease and a claim are renewed at a third of their ttl. Their context ends when
//     they are released or lost, and at their local deadline: the time at which the last
//     request that kept them was sent, and their ttl from there, less a margin for drift.
//     The server counts from when it received that request, so the context ends before
//     anybody else can have what it guarded. The clock is one that runs while the machine
//     sleeps.
//   - A context ends by a timer, and timers stand still while a machine sleeps. [Lease.Gate]
//     reads the clock, so a write that asks for it first is not made by one that has slept
//     through its deadline. The write itself is refused if it carries the gate: no clock
//     is needed for that.
//   - A call has one effect however often it is sent. One that was sent and not answered is
//     sent again, to the next server.
//   - Everything that is held belongs to the session of the [Client]. If the process dies,
//     its server gives it back within seconds.
//   - A task carries the OpenTelemetry span of who enqueues it, if there is one, to the
//     context of its handler.
//   - Calls of several goroutines are sent together: what arrives while a request is under
//     way goes with the next. No call waits for others to arrive.
//
// # The choice not taken
//
// The protocol of the socket would spare the head of each request. With HTTP there is
// one way to all servers, and since concurrent calls share requests, few heads.
package client
