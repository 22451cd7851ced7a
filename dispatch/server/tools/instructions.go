package tools

import "strings"

// Protocol is what an agent must know before it touches anything that others
// may touch, in three lines.
const Protocol = `1. Before you touch anything that other agents may touch (a file, a port, a deployment), call run_lease_acquire. With wait_secs you wait in line if another agent holds it.
2. Call lease_renew before expires_in_ms is over, or acquire with keep_alive. If a reply says that you lost the lease, stop, and acquire it again.
3. Call run_lease_release as soon as you are done. If you crash or disconnect, it is released for you.`

// instructions are sent to a client with its session. Some clients show their
// model only the first line, so the first line is the protocol. A sentence with a
// tool is for those who see that tool.
var instructions = [][]struct{ tool, text string }{
	{
		{"", "Before you touch anything that other agents may touch (a file, a port, a deployment), call run_lease_acquire (with wait_secs you wait in line); call lease_renew before expires_in_ms is over; call run_lease_release as soon as you are done; if a reply says that you lost a lease, stop."},
	},
	{
		{"", "If you crash or disconnect, your leases are released for you."},
		{"lease_acquire", "lease_acquire is for what only your own sub-tree touches."},
		{"", `If you are one of several sub-agents that share this connection, pass your name as "as".`},
	},
	{
		{"task_claim", "To share work, use task_enqueue, task_claim and task_submit."},
		{"spawn_worker", "As a lead, spawn_worker and spawn_sublead start agents, and actor_wait tells what they reported."},
		{"actor_report", "An agent that was started calls actor_report before it ends."},
	},
}

// Instructions returns the instructions for a viewer.
func (v Viewer) Instructions() string {
	if v.Role.Outside() {
		return "You see runs from outside, because your token is not an agent's. To take leases, use an actor's token (leasehold actor token PATH)."
	}
	sees := map[string]bool{"": true}
	for _, t := range Agents() {
		sees[t.Name] = v.Sees(t)
	}
	var lines []string
	for _, line := range instructions {
		var told []string
		for _, sentence := range line {
			if sees[sentence.tool] {
				told = append(told, sentence.text)
			}
		}
		if len(told) > 0 {
			lines = append(lines, strings.Join(told, " "))
		}
	}
	return strings.Join(lines, "\n")
}
