// Package client is for programs: leases that are renewed automatically,
// workers, and jobs that run on one replica.
//
//	c, err := client.Open(ctx, client.Options{Servers: []string{"unix:///run/user/1000/leasehold/leasehold.sock"}, Token: token})
//	lease, err := c.Acquire(ctx, "deploy", client.LeaseOptions{})
//	err = deploy(lease.Context(), lease.Token())
//	err = lease.Release(ctx)
//
// It is the public package of this module. The other packages serve the daemon,
// change without notice, and do nothing by themselves: expiry in a registry or
// a queue, for example, needs the daemon to run it.
//
// # Contract
//
//   - A lease or a claim is renewed at a third of its TTL. Its context ends when it
//     is released or lost, and at its local deadline: the time at which the last
//     successful request for it was sent, plus the TTL, less a margin for drift. The
//     server counts from when it received that request, so the context ends before
//     anybody else can get what was held. The clock also runs while the machine
//     sleeps.
//   - A context ends by a timer, and timers stop while a machine sleeps.
//     [Lease.Gate] reads the clock. A program that asks for a gate before each write
//     does not write after it has slept through its deadline. A write that carries
//     the gate is checked by the server, too; no clock is needed for that.
//   - A call has one effect, however often it is sent. If a call was sent and not
//     answered, it is sent again, to the next server.
//   - Everything that is held belongs to the session of the [Client]. If the process
//     dies, its server releases it within seconds.
//   - If a task is enqueued within an OpenTelemetry span, the span's context is
//     passed to the handler of the task.
//   - Calls of several goroutines are sent together: what arrives during a request
//     goes with the next one. No call waits for others to arrive.
//
// # Alternative not chosen
//
// The protocol of the socket would avoid the header of each request. HTTP
// reaches all servers in one way, and because concurrent calls share requests,
// there are few headers.
package client
